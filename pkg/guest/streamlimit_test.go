package guest_test

import (
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// endless is a response body that never ends. It consists of one event without an end.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		return copy(p, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"A`), nil
	}
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func (*endless) Close() error { return nil }

// flood answers watches and lists of one path with an endless body while on is set.
type flood struct {
	http.RoundTripper
	path        string
	contentType string
	on          *atomic.Bool
}

func (f flood) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.on.Load() || r.URL.Path != f.path || strings.Contains(r.Header.Get("Accept"), "protobuf") {
		return f.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r, Body: io.NopCloser(&endless{}), ContentLength: -1,
		Header: http.Header{"Content-Type": {f.contentType}},
	}, nil
}

// TestEachWatchOfAGuestIsLimited checks that each watch is limited, and that the error for the conditions names the
// resource.
func TestEachWatchOfAGuestIsLimited(t *testing.T) {
	for name, test := range map[string]struct {
		in       fakeapi.Collection
		resource string
		prepare  func(*fakeapi.Server)
		unknown  bool
	}{
		"CRDs":        {in: theCRDs, resource: "customresourcedefinitions", unknown: true},
		"namespaces":  {in: theNamespaces, resource: "namespaces", unknown: true},
		"leases":      {in: theLeases, resource: "leases", unknown: true},
		"Deployments": {in: theIstiods, resource: "deployments", unknown: true},
		"classes": {in: theClasses, resource: "gatewayclasses", unknown: true, prepare: func(api *fakeapi.Server) {
			api.Put(theCRDs, crd(classCRD, ""))
		}},
		"the mode": {in: theModes, resource: "ingresses", unknown: true, prepare: func(api *fakeapi.Server) {
			api.Put(theCRDs, crd("ingresses.operator.openshift.io", ""))
		}},
		"OLM": {in: theSubscriptions, resource: "subscriptions", prepare: func(api *fakeapi.Server) {
			api.Put(theCRDs, append(olmCRDs, crd(ruleCRD, labelledRule))...)
		}},
		"own objects": {resource: "configmaps", in: fakeapi.Collection{
			Path: "/api/v1/namespaces/openshift-ingress/configmaps", APIVersion: "v1", Kind: "ConfigMap",
		}},
		"what is used": {in: theRoutes, resource: "httproutes", prepare: func(api *fakeapi.Server) {
			api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice")))
		}},
		"Gateways": {in: theGateways, resource: "gateways", prepare: func(api *fakeapi.Server) {
			api.Put(theRoutes)
			api.Put(theCRDs, wholeCRD(t, routeCRD, withField("v1", "spice")), crd("gateways.gateway.networking.k8s.io", ""))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := &atomic.Bool{}
			on.Store(true)
			f := startWith(t, func(api *fakeapi.Server) {
				api.Put(theCRDs)
				api.Put(theNamespaces)
				if test.prepare != nil {
					test.prepare(api)
				}
				api.Put(test.in)
			}, func(next http.RoundTripper) http.RoundTripper {
				return flood{next, test.in.Path, "application/json", on}
			})
			want := "the API server sends too much of " + test.resource + ": one message has more than 2 MiB"
			f.Eventually(func() []string {
				var causes []string
				for _, p := range f.guest.WatchProblems() {
					if p.Cause.Class() == apply.Oversized {
						causes = append(causes, p.Cause.String())
					}
				}
				return slices.Compact(causes)
			}).Should(gomega.Equal([]string{want}))
			if !test.unknown {
				return
			}
			// Two watches can have this resource, and the other one can reach its limit first.
			f.Eventually(func() error {
				_, err := f.guest.Observe()
				return err
			}).Should(gomega.MatchError(gomega.ContainSubstring(want)))
			f.Eventually(f.guest.Check).Should(gomega.MatchError(gomega.ContainSubstring(want)))
		})
	}
}

// TestAWatchThatExceedsALimitNotifies checks the watches of all CRDs and of the namespace. The watches of hypergate's
// own objects, which notify themselves, still work. Most CRDs cause no notification either.
func TestAWatchThatExceedsALimitNotifies(t *testing.T) {
	for name, in := range map[string]fakeapi.Collection{"CRDs": theCRDs, "namespaces": theNamespaces} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := &atomic.Bool{}
			f := startWith(t, emptyGuest, func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Has("labelSelector") { // hypergate's own objects
						return next.RoundTrip(r)
					}
					return flood{next, in.Path, "application/json", on}.RoundTrip(r)
				})
			})
			f.observed()
			for len(f.notified) > 0 {
				<-f.notified
			}
			on.Store(true)
			f.api.Put(in) // ends the watches
			// The watches of a new guest notify one after the other, so the first notifications can be theirs.
			exceeded := func() bool {
				trouble := f.guest.WatchTrouble()
				return trouble != nil && strings.Contains(trouble.Error(), "sends too much of "+path.Base(in.Path))
			}
			for notified := false; !notified; notified = exceeded() {
				f.Eventually(f.notified).Should(gomega.Receive(), "not notified of the failure")
			}
		})
	}
}

// TestWatchesAreReadAsJSON checks that only JSON is accepted, because nothing else can be limited.
func TestWatchesAreReadAsJSON(t *testing.T) {
	on := &atomic.Bool{}
	on.Store(true)
	f := startWith(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	}, func(next http.RoundTripper) http.RoundTripper {
		return flood{next, theNamespaces.Path, "application/vnd.kubernetes.protobuf;stream=watch", on}
	})
	f.Eventually(func() error {
		_, err := f.guest.Observe()
		return err
	}).Should(gomega.MatchError(gomega.ContainSubstring("answers GET /api/v1/namespaces with a content type other than application/json")))
	on.Store(false)
	f.observed()
}

// TestAnEndlessCRDIsUnreadable checks that the reader of whole CRDs is limited, too.
func TestAnEndlessCRDIsUnreadable(t *testing.T) {
	on := &atomic.Bool{}
	f := startWith(t, func(api *fakeapi.Server) {
		api.Put(theCRDs)
		api.Put(theNamespaces)
	}, func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == theCRDs.Path && !r.URL.Query().Has("watch") {
				return flood{next, theCRDs.Path, "application/json", on}.RoundTrip(r)
			}
			return next.RoundTrip(r)
		})
	})
	f.observed()
	on.Store(true)
	f.api.Put(theCRDs, wholeCRD(t, routeCRD, func(u *unstructured.Unstructured) { u.SetGeneration(2) }))
	f.Eventually(func() string { return f.observed().CRDs[routeCRD].Why }).Should(gomega.Equal(
		"the API server sends too much of CRD " + routeCRD + ": one message has more than 2 MiB"))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r == nil {
		return nil, errors.ErrUnsupported
	}
	return f(r)
}
