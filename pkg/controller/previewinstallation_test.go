package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/dryrun"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fakeapi"
)

// writeAnswers answers writes: it refuses them, or answers with the object of the request.
type writeAnswers struct {
	http.RoundTripper
	refuses bool
}

func (w writeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return w.RoundTripper.RoundTrip(r)
	}
	if w.refuses {
		return forbiddenAnswer(r), nil
	}
	sent, _ := io.ReadAll(r.Body)
	object := map[string]any{}
	_ = json.Unmarshal(sent, &object)
	if metadata, is := object["metadata"].(map[string]any); is {
		metadata["uid"] = "7f3a"
	}
	return jsonAnswer(r, http.StatusCreated, object), nil
}

// withoutLeases refuses each request for a Lease.
type withoutLeases struct{ http.RoundTripper }

func (w withoutLeases) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/leases/") {
		return forbiddenAnswer(r), nil
	}
	return w.RoundTripper.RoundTrip(r)
}

func forbiddenAnswer(r *http.Request) *http.Response {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "all"}, "", errors.New("no permission")).Status()
	refused.Kind, refused.APIVersion = "Status", "v1"
	return jsonAnswer(r, http.StatusForbidden, refused)
}

func jsonAnswer(r *http.Request, code int, object any) *http.Response {
	body, _ := json.Marshal(object)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}
}

// previewOptions returns the options of a preview of two clusters without hypergate and without a GatewayClass. The
// management cluster refuses all writes. It has a HostedControlPlane with this spec, or none if that is empty.
func previewOptions(t *testing.T, spec string) Options {
	t.Helper()
	d := newTestDecider(t)
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	mgmtAPI, guestAPI := fakeapi.New(t), fakeapi.New(t)
	collection := func(path, version, kind string) fakeapi.Collection {
		return fakeapi.Collection{Path: path, APIVersion: version, Kind: kind}
	}
	mgmtAPI.Put(theNamespaces, "{metadata: {name: clusters-guest1, uid: 5f0b}}")
	mgmtAPI.Put(collection("/apis/apps/v1/namespaces/clusters-guest1/deployments", "apps/v1", "Deployment"))
	mgmtAPI.Put(collection("/api/v1/namespaces/clusters-guest1/secrets", "v1", "Secret"))
	mgmtAPI.Put(collection("/api/v1/namespaces/clusters-guest1/services", "v1", "Service"))
	const route = "route.openshift.io/v1"
	mgmtAPI.Put(collection("/apis/"+route+"/namespaces/clusters-guest1/routes", route, "Route"))
	if spec != "" {
		planes := collection("/apis/hypershift.openshift.io/v1beta1/namespaces/clusters-guest1/hostedcontrolplanes",
			"hypershift.openshift.io/v1beta1", "HostedControlPlane")
		mgmtAPI.Put(planes, "{metadata: {namespace: clusters-guest1, name: guest1, uid: 7f3a}, spec: {"+spec+"}}")
	}
	guestAPI.Put(theNamespaces, "{metadata: {name: kube-system, uid: 0b5f}}")
	guestAPI.Put(collection("/apis/apps/v1/namespaces/openshift-ingress/deployments", "apps/v1", "Deployment"))
	guestAPI.Put(collection("/apis/coordination.k8s.io/v1/namespaces/openshift-ingress/leases", "coordination.k8s.io/v1", "Lease"))
	const extensions = "apiextensions.k8s.io/v1"
	guestAPI.Put(collection("/apis/"+extensions+"/customresourcedefinitions", extensions, "CustomResourceDefinition"))
	answering := func(api *fakeapi.Server, refuses bool) *rest.Config {
		config := api.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return writeAnswers{next, refuses} })
		return config
	}
	return Options{
		Config: d.config, Source: source, MgmtConfig: answering(mgmtAPI, true), GuestConfig: answering(guestAPI, false),
		TokenLifetime: time.Hour, CAOverlap: time.Hour,
	}
}

// TestAPreviewOfAnInstallationNeedsNoClass checks that the writes of a first installation are tried on both sides, and
// that the status of the assumed GatewayClass is not.
func TestAPreviewOfAnInstallationNeedsNoClass(t *testing.T) {
	t.Parallel()
	found, err := PreviewInstallation(klog.NewContext(t.Context(), logr.Discard()), previewOptions(t, ""))
	if err != nil || found.Refusal != nil || found.Idle != "" || found.OnHold || found.Pending != "" {
		t.Fatalf("%+v, %v", found, err)
	}
	refused := map[string]int{}
	for _, w := range found.Writes {
		if w.Refusal != "" {
			refused[w.Side]++
		}
		if strings.HasPrefix(w.Resource, "gatewayclasses") {
			t.Errorf("a write to the class: %+v", w)
		}
	}
	isService := func(w dryrun.Write) bool {
		return w.Side == "management" && w.Resource == "services" && w.Refusal != ""
	}
	if refused["guest"] > 0 || !slices.ContainsFunc(found.Writes, isService) {
		t.Errorf("%d refused in the guest, %d on the management side: %+v", refused["guest"], refused["management"], found.Writes)
	}
}

// TestAPreviewNeedsNoLease checks that a preview shows the same writes if the Lease cannot be read, and has the cause.
func TestAPreviewNeedsNoLease(t *testing.T) {
	t.Parallel()
	names := func(o Options) (out []string, unread error) {
		found, err := PreviewInstallation(klog.NewContext(t.Context(), logr.Discard()), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range found.Writes {
			out = append(out, w.Verb+" "+w.Side+" "+w.Resource+" "+w.Name)
		}
		slices.Sort(out)
		return out, found.Unread
	}
	want, unread := names(previewOptions(t, ""))
	if unread != nil || len(want) == 0 {
		t.Errorf("without a Lease: %v, writes %q", unread, want)
	}
	o := previewOptions(t, "")
	o.MgmtConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutLeases{next} })
	got, unread := names(o)
	if !apierrors.IsForbidden(unread) || !slices.Equal(got, want) {
		t.Errorf("with a Lease that cannot be read: %v, writes %q, want %q", unread, got, want)
	}
}

// TestAPreviewSaysThatIstiodIsNotPlannedYet checks that a preview names what istiod's own writes wait for.
func TestAPreviewSaysThatIstiodIsNotPlannedYet(t *testing.T) {
	t.Parallel()
	o := previewOptions(t, "")
	o.Config.Publish = model.Publish{Strategy: model.PublishLoadBalancer}
	found, err := PreviewInstallation(klog.NewContext(t.Context(), logr.Discard()), o)
	if want := "an address for istiod's load balancer (management side)"; err != nil || found.Pending != want {
		t.Errorf("%q, %v, want %q: %+v", found.Pending, err, want, found)
	}
}

// TestAPreviewOfAPausedControlPlane checks that a preview says that nothing was planned, and why.
func TestAPreviewOfAPausedControlPlane(t *testing.T) {
	t.Parallel()
	found, err := PreviewInstallation(klog.NewContext(t.Context(), logr.Discard()), previewOptions(t, "pausedUntil: 'true'"))
	if want := "the HostedControlPlane allows no writes: it is paused, without an end"; err != nil || !found.OnHold || found.Idle != want {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestWhyNothingIsInstalled checks the reason of a preview.
func TestWhyNothingIsInstalled(t *testing.T) {
	t.Parallel()
	d := newTestDecider(t)
	for want, edit := range map[string]func(*observation){
		"": nil,
		"no GatewayClass requests an installation":      func(o *observation) { o.guest.Classes = nil },
		"the management mode of the guest is Unmanaged": func(o *observation) { o.guest.Mode = crds.Unmanaged },
		"hypergate is not enabled (--install=false)":    func(o *observation) { o.mgmt.ControlPlane.NotEnabled = true },
		"the capability Ingress is disabled in the guest": func(o *observation) {
			o.mgmt.ControlPlane = model.ControlPlane{UID: "7f3a", DisabledCapabilities: []string{model.IngressCapability}}
		},
	} {
		if got := d.observed(edit).idle(d.config); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
