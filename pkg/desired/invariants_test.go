package desired_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
	"github.com/hypergate/hypergate/pkg/webhookurl"
	"github.com/hypergate/hypergate/test/sides"
)

// checkPlan checks the invariants of every plan. The property tests call it for many plans.
// TestCRDsHaveTheOwnerLabelAndNoLeaks checks the CRDs once, because they have a size of one megabyte and depend on few
// inputs.
func checkPlan(t *testing.T, cfg model.Config, mgmt model.ManagementObservation, plan desired.Plan) {
	t.Helper()
	checkSide(t, mgmtObjects(plan), model.MgmtKinds(), cfg.MgmtNamespace, cfg.OwnerValue(model.SideMgmt))
	guest := append(guestObjects(plan), anObjects(plan.Protection)...)
	checkSide(t, guest, model.GuestKinds(), cfg.GuestNamespace, cfg.OwnerValue(model.SideGuest))
	checkNothingLeaks(t, cfg, mgmt, guest)
	checkWebhooks(t, cfg, plan)
	checkPod(t, cfg, mgmt, plan)
}

func TestCRDsHaveTheOwnerLabelAndNoLeaks(t *testing.T) {
	cfg := config(model.TopologyHosted)
	cfg.IstioResources = model.KnownIstioResources()
	crds := crdObjects(compute(t, cfg, embedded(t), installed(t), withClasses("openshift-default")))
	checkSide(t, crds, model.GuestKinds(), cfg.GuestNamespace, cfg.OwnerValue(model.SideGuest))
	checkNothingLeaks(t, cfg, installed(t), crds)
}

// checkSide checks that all objects are on the right side.
func checkSide(t *testing.T, objects []anObject, kinds []model.Kind, namespace, owner string) {
	t.Helper()
	for _, o := range objects {
		sides.Check(t, o, kinds, namespace, owner)
	}
}

// checkNothingLeaks checks that the guest's objects contain nothing of the management side except the root of the mesh
// CA.
func checkNothingLeaks(t *testing.T, cfg model.Config, mgmt model.ManagementObservation, guest []anObject) {
	t.Helper()
	for _, o := range guest {
		text := string(o.JSON())
		// A short name can be part of any word.
		isLong := len(cfg.MgmtNamespace) >= len(mgmtNamespace)
		if cfg.Topology == model.TopologyHosted && isLong && strings.Contains(text, cfg.MgmtNamespace) {
			t.Errorf("%s, in the guest, names the management namespace %s", o, cfg.MgmtNamespace)
		}
		for part, pem := range map[string][]byte{"issuing CA's key": mgmt.CA.Key, "issuing CA's certificate": mgmt.CA.Cert} {
			if found := trace(text, pem); found != "" {
				t.Errorf("%s, in the guest, has a part of the %s: %s", o, part, found)
			}
		}
		for _, word := range []string{"PRIVATE KEY", "kubeconfig", "serviceAccountToken"} {
			if strings.Contains(text, word) {
				t.Errorf("%s, in the guest, has %q in it", o, word)
			}
		}
	}
}

// trace returns a line of a PEM block that it finds in a text, plain or in base64 at any of the three offsets. It
// returns "" if there is none.
func trace(text string, pem []byte) string {
	for line := range strings.Lines(string(pem)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "-----") {
			continue
		}
		forms := []string{line}
		for offset := range 3 {
			// The first and last characters of an encoding depend on the bytes before and after.
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", offset) + line))
			forms = append(forms, encoded[4:len(encoded)-4])
		}
		for _, form := range forms {
			if strings.Contains(text, form) {
				return form
			}
		}
	}
	return ""
}

// TestCheckNothingLeaksCanFail checks that checkNothingLeaks can fail.
func TestCheckNothingLeaksCanFail(t *testing.T) {
	key := testCA(t).Key
	for name, text := range map[string]string{
		"plain":            "config: " + string(key),
		"base64":           base64.StdEncoding.EncodeToString(key),
		"base64, offset 1": base64.StdEncoding.EncodeToString(append([]byte("x"), key...)),
		"base64, offset 2": base64.StdEncoding.EncodeToString(append([]byte("xy"), key...)),
		"one line":         strings.Split(string(key), "\n")[2],
	} {
		if trace(text, key) == "" {
			t.Errorf("%s: not found", name)
		}
	}
	if found := trace(string(testCA(t).Root), key); found != "" {
		t.Errorf("found %q where there is no key", found)
	}
}

// webhook is one validating or mutating webhook of a plan.
type webhook struct {
	object string
	name   string
	config admissionregistrationv1.WebhookClientConfig
}

func webhooks(t *testing.T, plan desired.Plan) []webhook {
	t.Helper()
	var out []webhook
	for _, o := range plan.Admission {
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		switch o.GVK().Kind {
		case "ValidatingWebhookConfiguration":
			for _, w := range as[admissionregistrationv1.ValidatingWebhookConfiguration](t, u).Webhooks {
				out = append(out, webhook{o.String(), w.Name, w.ClientConfig})
			}
		case "MutatingWebhookConfiguration":
			for _, w := range as[admissionregistrationv1.MutatingWebhookConfiguration](t, u).Webhooks {
				out = append(out, webhook{o.String(), w.Name, w.ClientConfig})
			}
		default:
			t.Errorf("%s is in the admission stage and has no webhooks", o)
		}
	}
	return out
}

// checkWebhooks checks that webhooks of a hosted cluster have a URL that HyperShift accepts, and that webhooks of a
// standalone cluster use istiod's Service.
func checkWebhooks(t *testing.T, cfg model.Config, plan desired.Plan) {
	t.Helper()
	for _, o := range guestObjects(plan) {
		if u, _ := o.Unstructured(); o.GVK().Kind == "ValidatingWebhookConfiguration" && u.GetLabels()["istio.io/rev"] != "" {
			t.Errorf("%s: an istiod in the guest would write its CA into it, because of the label istio.io/rev", o)
		}
	}
	services := hyperShiftsView(t, plan)
	for _, w := range webhooks(t, plan) {
		if len(w.config.CABundle) == 0 {
			t.Errorf("%s, webhook %s: no caBundle", w.object, w.name)
		}
		if cfg.Topology == model.TopologyStandalone {
			s := w.config.Service
			if w.config.URL != nil || s == nil || s.Name != cfg.IstiodName() || s.Namespace != cfg.GuestNamespace {
				t.Errorf("%s, webhook %s: leads to %+v, want istiod's Service", w.object, w.name, w.config)
			}
			continue
		}
		if w.config.Service != nil || w.config.URL == nil {
			t.Errorf("%s, webhook %s: leads to %+v, want a URL", w.object, w.name, w.config)
			continue
		}
		if !strings.HasPrefix(*w.config.URL, "https://"+cfg.WebhookHost+":443/") {
			t.Errorf("%s, webhook %s: the URL %s does not lead to %s", w.object, w.name, *w.config.URL, cfg.WebhookHost)
		}
		if by := webhookurl.ForbiddenBy(*w.config.URL, services); len(by) > 0 {
			t.Errorf("%s, webhook %s: HyperShift would delete it because of the Services %q", w.object, w.name, by)
		}
	}
}

// hyperShiftsView returns the Services on the management side as HyperShift's webhook validation sees them.
func hyperShiftsView(t *testing.T, plan desired.Plan) []webhookurl.Service {
	t.Helper()
	var out []webhookurl.Service
	for _, o := range mgmtObjects(plan) {
		if o.GVK().Kind != "Service" {
			continue
		}
		u, err := o.Unstructured()
		if err != nil {
			t.Fatal(err)
		}
		_, labelled := u.GetLabels()["hypershift.openshift.io/allow-guest-webhooks"]
		out = append(out, webhookurl.Service{Name: u.GetName(), Labelled: labelled})
	}
	if len(out) == 0 {
		t.Error("there is no Service on the management side, so istiod is not reachable")
	}
	return out
}

// TestCheckWebhooksCanFail checks that checkWebhooks can fail: without the label on the Service,
// HyperShift deletes the webhook.
func TestCheckWebhooksCanFail(t *testing.T) {
	plan := compute(t, config(model.TopologyHosted), embedded(t), installed(t), withClasses("openshift-default"))
	services := hyperShiftsView(t, plan)
	for i := range services {
		services[i].Labelled = false
	}
	if by := webhookurl.ForbiddenBy(*webhooks(t, plan)[0].config.URL, services); len(by) == 0 {
		t.Error("an unlabelled Service forbids nothing")
	}
}

// checkPod checks that istiod's pod has no credential of the management side, and that it does not start without its
// credential of the guest and the CA.
func checkPod(t *testing.T, cfg model.Config, mgmt model.ManagementObservation, plan desired.Plan) {
	t.Helper()
	deployment := as[appsv1.Deployment](t, theOnly(t, mgmtObjects(plan), "Deployment"))
	pod := deployment.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("istiod's pod mounts the management side's service account token")
	}
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("istiod's environment names the Services of the management namespace")
	}
	if _, asks := deployment.Spec.Template.Labels["hypershift.openshift.io/need-management-kas-access"]; asks {
		t.Error("istiod's pod asks for access to the management API")
	}
	if pod.ServiceAccountName != theOnly(t, mgmtObjects(plan), "ServiceAccount").GetName() {
		t.Errorf("istiod's pod has the service account %q, which does not exist", pod.ServiceAccountName)
	}
	want := 1
	if publish.UsesTunnel(cfg, mgmt.ControlPlane) {
		want = 2 // with the sidecar of the tunnel
	}
	checkVolumes(t, pod, want == 2)
	if len(pod.InitContainers) > 0 || len(pod.Containers) != want {
		t.Fatalf("istiod's pod has %d init containers and %d containers, want %d", len(pod.InitContainers), len(pod.Containers), want)
	}
	checkContainer(t, cfg, pod.Containers[0])
}

// checkVolumes checks that the volumes exist, and that istiod does not start without its own.
func checkVolumes(t *testing.T, pod corev1.PodSpec, tunnel bool) {
	t.Helper()
	required := map[string]bool{"cacerts": false, "istio-kubeconfig": false, "mesh": false, "inject": false}
	for _, v := range pod.Volumes {
		optional := false
		if v.Secret != nil && v.Secret.SecretName == model.TunnelSecretName {
			if !tunnel || v.Secret.Optional == nil || !*v.Secret.Optional || len(v.Secret.Items) == 0 {
				t.Errorf("volume %s: there is no tunnel, or istiod does not start without it, or it has all files", v.Name)
			}
			continue
		}
		switch {
		case v.Secret != nil:
			optional = v.Secret.Optional != nil && *v.Secret.Optional
		case v.ConfigMap != nil:
			optional = v.ConfigMap.Optional != nil && *v.ConfigMap.Optional
		case v.EmptyDir == nil:
			t.Errorf("volume %s is neither a Secret, nor a ConfigMap, nor an empty folder", v.Name)
		}
		_, known := required[v.Name]
		if optional || !known && v.EmptyDir == nil {
			t.Errorf("volume %s: optional %t; a client that can write to the namespace could create its source", v.Name, optional)
		}
		required[v.Name] = true
	}
	for name, there := range required {
		if !there {
			t.Errorf("there is no volume %s", name)
		}
	}
	for _, m := range slices.Concat(pod.Containers[0].VolumeMounts, pod.Containers[len(pod.Containers)-1].VolumeMounts) {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s is mounted at %s, and there is no such volume", m.Name, m.MountPath)
		}
	}
}

func checkContainer(t *testing.T, cfg model.Config, c corev1.Container) {
	t.Helper()
	for _, arg := range []string{
		"--namespace=" + cfg.GuestNamespace, "--cniNamespace=" + cfg.GuestNamespace, "--kubeconfig=/var/run/secrets/remote/config",
	} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("istiod is started with %q, without %s", c.Args, arg)
		}
	}
	seen := map[string]bool{}
	for _, e := range c.Env {
		if seen[e.Name] {
			t.Errorf("environment variable %s is given twice", e.Name)
		}
		seen[e.Name] = true
	}
	if seen["KUBECONFIG"] {
		t.Error("KUBECONFIG is set: istiod would fall back to the management cluster where the file is missing")
	}
	if c.Image != cfg.PilotImage {
		t.Errorf("istiod's image is %q, want %q", c.Image, cfg.PilotImage)
	}
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for name, path := range map[string]string{
		"cacerts": "/etc/cacerts", "istio-kubeconfig": "/var/run/secrets/remote", "mesh": "/etc/istio/config",
		"inject": "/var/lib/istio/inject",
	} {
		if mounts[name] != path {
			t.Errorf("%s is mounted at %q, and istiod looks for it at %s", name, mounts[name], path)
		}
	}
}

// as converts an object to its type. A field that the type does not have ends the test.
func as[T any](t *testing.T, u *unstructured.Unstructured) T {
	t.Helper()
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &out, true); err != nil {
		t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
	return out
}
