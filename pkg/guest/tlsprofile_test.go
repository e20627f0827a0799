package guest_test

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

const apiServerCRD = "apiservers.config.openshift.io"

var theAPIServers = fakeapi.Collection{
	Path: "/apis/config.openshift.io/v1/apiservers", APIVersion: "config.openshift.io/v1", Kind: "APIServer",
}

func withAPIServer(spec string) func(*fakeapi.Server) {
	return func(api *fakeapi.Server) {
		api.Put(theNamespaces)
		api.Put(theCRDs, crd(apiServerCRD, ""))
		api.Put(theAPIServers, "{metadata: {name: cluster}, spec: "+spec+"}")
	}
}

// TestTLSProfileOfAStandaloneCluster checks what is read of the cluster's APIServer object. Fields of another type
// count as not set.
func TestTLSProfileOfAStandaloneCluster(t *testing.T) {
	cfg := config()
	cfg.Topology, cfg.MgmtNamespace = model.TopologyStandalone, cfg.GuestNamespace
	for name, tc := range map[string]struct {
		spec string
		want model.TLSProfile
	}{
		"none": {spec: "{}"},
		"by name": {
			"{tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, modern: {}}}",
			model.TLSProfile{Type: "Modern", Adherence: "StrictAllComponents"},
		},
		"Custom": {
			"{tlsSecurityProfile: {type: Custom, custom: {ciphers: [a, b], groups: [c], minTLSVersion: VersionTLS12}}}",
			model.TLSProfile{Type: "Custom", Ciphers: []string{"a", "b"}, Groups: []string{"c"}, MinVersion: "VersionTLS12"},
		},
		"other types": {
			"{tlsAdherence: 1, tlsSecurityProfile: {type: Custom, custom: {ciphers: [1], groups: {a: b}, minTLSVersion: []}}}",
			model.TLSProfile{Type: "Custom"},
		},
		"a text instead of a profile": {spec: "{tlsSecurityProfile: Modern}"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startAs(t, cfg, withAPIServer(tc.spec), nil)
			f.Expect(f.observed().TLSProfile).To(gomega.Equal(tc.want))
		})
	}
}

// TestTheTLSProfileOfAHostedGuestIsNotRead checks that a guest cannot change istiod by its own APIServer object.
func TestTheTLSProfileOfAHostedGuestIsNotRead(t *testing.T) {
	f := start(t, withAPIServer("{tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern}}"))
	f.Expect(f.observed().TLSProfile).To(gomega.Equal(model.TLSProfile{}))
	f.Expect(f.api.Requests(theAPIServers)).To(gomega.BeEmpty())
}

// TestATLSProfileThatCannotBeRead checks that a profile that hypergate is not allowed to read is not known.
func TestATLSProfileThatCannotBeRead(t *testing.T) {
	cfg := config()
	cfg.Topology, cfg.MgmtNamespace = model.TopologyStandalone, cfg.GuestNamespace
	f := startAs(t, cfg, func(api *fakeapi.Server) {
		withAPIServer("{tlsSecurityProfile: {type: Modern}}")(api)
		api.Fail(theAPIServers, forbidden(apiServerCRD))
	}, nil)
	f.Expect(f.observed().Unread).To(gomega.Equal(model.UnreadSettings{TLSProfile: true}))
	f.api.Fail(theAPIServers, nil)
	f.Eventually(func() string { return f.observed().TLSProfile.Type }).Should(gomega.Equal("Modern"))
	f.Expect(f.observed().Unread).To(gomega.BeZero())
}
