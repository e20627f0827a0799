package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/model"
)

const auditLines = `{"stage":"ResponseStarted","verb":"watch","userAgent":"hypergate/v1",` +
	`"requestURI":"/api/v1/secrets?watch=true","objectRef":{"resource":"secrets"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"watch","userAgent":"hypergate/v1",` +
	`"requestURI":"/api/v1/secrets?watch=true","objectRef":{"resource":"secrets"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"get","userAgent":"hypergate/v1",` +
	`"requestURI":"/api/v1/namespaces/a/secrets/b","objectRef":{"resource":"secrets","namespace":"a","name":"b"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"get","userAgent":"hypergate/v1","requestURI":"/version"}` + "\n" +
	`{"stage":"ResponseComplete","verb":"update","userAgent":"hypergate/v1/leader-election",` +
	`"requestURI":"/apis","objectRef":{"resource":"leases","namespace":"a","name":"c"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"create","userAgent":"hypergate/v1",` +
	`"requestURI":"/apis?dryRun=All","objectRef":{"resource":"destinationrules","namespace":"a","name":"d"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"create","userAgent":"hypergate/v1",` +
	`"requestURI":"/api","objectRef":{"resource":"serviceaccounts","subresource":"token","namespace":"a","name":"e"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"patch","userAgent":"hypergate/v1",` +
	`"requestURI":"/apis","objectRef":{"resource":"gatewayclasses","subresource":"status","name":"f"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"patch","userAgent":"Go-http-client/2.0",` +
	`"requestURI":"/api","objectRef":{"resource":"configmaps","namespace":"a","name":"g"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"patch","userAgent":"bench",` +
	`"requestURI":"/api","objectRef":{"resource":"configmaps","namespace":"a","name":"g"}}` + "\n" +
	`{"stage":"ResponseComplete","verb":"update","userAgent":"kube-apiserver/v1",` +
	`"requestURI":"/apis","objectRef":{"resource":"customresourcedefinitions","name":"h"}}` + "\n"

// TestAuditLog checks that every request has one kind. It also checks that all requests of the controller count as the
// controller's, with any user agent.
func TestAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	audit, err := openAudit(model.SideGuest, path)
	if err != nil {
		t.Fatal(err)
	}
	// The first read ends in the middle of a line.
	for _, part := range []string{auditLines[:300], auditLines[300:]} {
		if _, err := log.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err := audit.read(); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range audit.events {
		if e.byController() {
			got = append(got, string(e.kind())+" of "+e.id())
		}
	}
	want := []string{
		"watch of guest secrets ", "read of guest secrets a/b", "read of guest  ", "lease of guest leases a/c",
		"dry run of guest destinationrules a/d",
		"token of guest serviceaccounts a/e", "status of guest gatewayclasses f", "write of guest configmaps a/g",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the controller's requests, -want +got:\n%s", diff)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[len(hundred)-1-i] = time.Duration(i + 1)
	}
	for _, tc := range []struct {
		values        []time.Duration
		percent, want int
	}{
		{nil, 50, 0},
		{hundred[:1], 99, 100},
		{hundred, 1, 1},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{[]time.Duration{3, 1, 2}, 50, 2},
	} {
		if got := percentile(tc.values, tc.percent); got != time.Duration(tc.want) {
			t.Errorf("percentile %d of %d values is %d, want %d", tc.percent, len(tc.values), got, tc.want)
		}
	}
}

// TestUnpack checks that the copy equals the file and is executable.
func TestUnpack(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	want := bytes.Repeat([]byte("0123456789"), 3*unpackPiece/10)
	if err := os.WriteFile(from, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpack(from, to); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want the %d of the file", len(got), err, len(want))
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the copy cannot be run: %v, %v", info, err)
	}
}

// TestCourse checks that the time starts with the GatewayClass and ends with the first write of the last object. A
// second write of an object is an error.
func TestCourse(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(n int, agent, verb, resource, subresource string) event {
		e := event{Side: model.SideGuest, Verb: verb, UserAgent: agent}
		e.RequestReceivedTimestamp = start.Add(time.Duration(n) * time.Millisecond)
		e.StageTimestamp = e.RequestReceivedTimestamp.Add(time.Millisecond)
		e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name, e.ResponseStatus.Code = resource, subresource, "x", 201
		return e
	}
	guest := &side{name: model.SideGuest}
	objects := []body{
		{side: guest, resource: schema.GroupVersionResource{Resource: "roles"}, name: "x"},
		{side: guest, resource: schema.GroupVersionResource{Resource: "services"}, name: "x"},
	}
	events := []event{
		at(-5, "hypergate", "get", "secrets", ""), at(0, benchAgent, "create", "gatewayclasses", ""),
		at(2, "hypergate", "get", "secrets", ""),
		at(3, "hypergate", "patch", "roles", ""), at(4, "hypergate", "create", "serviceaccounts", "token"),
		at(5, "kube-apiserver/v1", "create", "ipaddresses", ""),
		at(6, "hypergate", "patch", "services", ""), at(9, "hypergate", "patch", "gatewayclasses", "status"),
	}
	got, err := course(events, objects)
	want := installed{
		took: 7 * time.Millisecond, toFirst: 3 * time.Millisecond, toToken: 5 * time.Millisecond,
		last: "guest services x", reads: 1, writes: 3,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	twice := slices.Concat(events[:4], []event{at(5, "hypergate", "patch", "roles", "")})
	if _, err := course(twice, objects); err == nil {
		t.Error("an object that was written twice went unnoticed")
	}
}
