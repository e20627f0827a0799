// Package modeltest has ordinary values of package model for tests.
package modeltest

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
)

// ControlPlane returns an ordinary HostedControlPlane.
func ControlPlane() model.ControlPlane {
	return model.ControlPlane{
		Name: "guest1", UID: "7f3a", Platform: "AWS", Availability: model.SingleReplica,
		ReleaseImage: "quay.io/r:4.21", GuestReleaseImage: "quay.io/r:4.21", ReleaseVersion: "4.21.0",
	}
}

// Credential returns istiod's credential for the guest. It is valid for an hour.
func Credential() model.Credential {
	issued := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return model.Credential{
		GuestAPI: model.GuestAPI{Server: "https://kube-apiserver:6443", CABundle: []byte("a bundle")}, Token: "a token", Issued: issued,
		Expires: issued.Add(time.Hour),
	}
}

// Peer returns the peer that a text describes.
func Peer(tb testing.TB, text string) model.Peer {
	tb.Helper()
	p, err := model.ParsePeer(text)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}
