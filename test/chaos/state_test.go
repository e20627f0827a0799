package chaos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hypershift"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/untouched"
)

// recovery is the maximum time between the end of a fault and the planned state of both sides. A slow machine gets as
// long as twice an undisturbed installation took in this run.
func (w *chaosRun) recovery() time.Duration { return max(30*time.Second, 2*w.undisturbed) }

// before is the state that a fault must not change.
type before struct {
	others map[string]string
	istiod istiod
	ca     string
}

// istiod identifies an istiod: its Deployment and the number of processes that the kubelet started.
type istiod struct {
	UID        string
	Generation int64
	Starts     int
}

// remember records the state that a fault must not change.
func (w *chaosRun) remember() before {
	w.Helper()
	return before{others: w.notOurs(), istiod: w.istiod(), ca: w.cas.only(w)}
}

// check checks the result of any fault. It returns the time between the end of the fault and the planned state of
// both sides.
func (w *chaosRun) check(f fault, was before, ended time.Time) time.Duration {
	w.Helper()
	took := w.asPlanned(ended)
	if most := w.recovery(); took > most {
		w.Errorf("%s: both sides were as planned %s after its end, want at most %s", f.name, took, most)
	}
	if now := w.cas.only(w); now != was.ca && !f.installs {
		w.Errorf("%s: the mesh CA has changed", f.name)
	}
	want := was.istiod
	if f.restartsIstiod {
		want.Starts++
	}
	if now := w.istiod(); now != want && !f.installs {
		w.Errorf("%s: istiod is %+v, want %+v", f.name, now, want)
	}
	if err := untouched.Compare(was.others, w.notOurs(),
		[]string{"management: /configmaps " + w.cfg.MgmtNamespace + "/foreign"}); err != nil {
		w.Errorf("%s: %v", f.name, err)
	}
	w.nothingLeaks(f.name)
	return took
}

// asPlanned waits until both sides equal the reference, and returns the time since the given time.
func (w *chaosRun) asPlanned(since time.Time) time.Duration {
	w.Helper()
	var took time.Duration
	w.Eventually(func() string {
		now, err := w.look(w.Context())
		took = time.Since(since)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(w.reference, now)
	}).Should(gomega.BeEmpty(), "differences from an undisturbed installation")
	return took.Round(10 * time.Millisecond)
}

// isAsPlanned reports whether both sides equal the reference now.
func (w *chaosRun) isAsPlanned() bool {
	now, err := w.look(w.Context())
	return err == nil && maps.Equal(w.reference, now)
}

// settled returns the objects of both sides once they have not changed for a second.
func (w *chaosRun) settled() map[string]string {
	w.Helper()
	return untouched.Settled(w, time.Second, func() map[string]string {
		var now map[string]string
		w.Eventually(func() (err error) { now, err = w.look(w.Context()); return err }).Should(gomega.Succeed())
		return now
	})
}

// seen is the text of an object at one resourceVersion.
type seen struct{ version, text string }

// look returns hypergate's objects on both sides, without values that differ between two installations.
func (w *chaosRun) look(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := map[string]string{}
	for _, s := range w.sides() {
		for _, kind := range s.kinds {
			gvr := kind.GVK.GroupVersion().WithResource(kind.Resource)
			if err := w.lookAt(ctx, s, gvr, model.OwnerLabel+"="+w.cfg.OwnerValue(s.name), out); err != nil {
				return nil, err
			}
		}
	}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	classes := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	if err := w.lookAt(ctx, w.guest, leases, model.OwnershipLabel, out); err != nil {
		return nil, err
	}
	if err := w.lookAt(ctx, w.mgmt, hypershift.ControlPlanes(), "", out); err != nil {
		return nil, err
	}
	return out, w.lookAt(ctx, w.guest, classes, "", out)
}

// lookAt adds the objects of a resource to a map. It reads only changed objects in full.
func (w *chaosRun) lookAt(ctx context.Context, s *side, gvr schema.GroupVersionResource, selector string, into map[string]string) error {
	list, err := s.meta.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil // its CRD is not installed yet
	}
	if err != nil {
		return err
	}
	root := base64.StdEncoding.EncodeToString(w.cas.root())
	for _, o := range list.Items {
		id := fmt.Sprintf("%s: %s/%s %s/%s", s.name, gvr.Group, gvr.Resource, o.Namespace, o.Name)
		version := string(o.UID) + "/" + o.ResourceVersion
		if s.seen[id].version != version {
			whole, err := s.objects.Resource(gvr).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			s.seen[id] = seen{string(whole.GetUID()) + "/" + whole.GetResourceVersion(), normal(whole)}
		}
		into[id] = strings.ReplaceAll(s.seen[id].text, root, "<root>")
	}
	return nil
}

// rootHash is an annotation with a hash of the mesh CA.
const rootHash = "gateway.hypergate.dev/ca-root-hash"

// times matches times in conditions, annotations and messages.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// normal returns an object as text, without values that differ between two installations: versions, UIDs, times, and
// values that the API server chooses. Of the managed fields, it keeps those of hypergate.
func normal(o *unstructured.Unstructured) string {
	var managed []any
	for _, f := range o.GetManagedFields() {
		if strings.HasPrefix(f.Manager, model.FieldManager) && f.FieldsV1 != nil {
			managed = append(managed, []string{f.Manager, string(f.Operation), f.Subresource, f.FieldsV1.GetRawString()})
		}
	}
	o.Object["managed"] = managed
	for _, field := range [][]string{
		{"metadata", "managedFields"},
		{"metadata", "resourceVersion"},
		{"metadata", "uid"},
		{"metadata", "creationTimestamp"},
		{"metadata", "generation"},
		{"metadata", "annotations", rootHash},
		{"spec", "template", "metadata", "annotations", rootHash},
		{"spec", "clusterIP"},
		{"spec", "clusterIPs"},
	} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	if o.GetKind() != "GatewayClass" && o.GetKind() != "HostedControlPlane" {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	if data, found, _ := unstructured.NestedMap(o.Object, "data"); found && o.GetKind() == "Secret" {
		o.Object["data"] = slices.Sorted(maps.Keys(data))
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // impossible: the object came as JSON
	}
	return times.ReplaceAllString(string(text), "<time>")
}

// notOurs returns the objects of both sides that hypergate does not own. It also leaves out objects that hypergate
// may always write: its Lease, and conditions of the class.
func (w *chaosRun) notOurs() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, s := range w.sides() {
		w.Eventually(func() error {
			return untouched.Note(w.Context(), s.plane.Config, untouched.Scope{}, string(s.name)+": ", all)
		}).Should(gomega.Succeed())
	}
	ours, err := w.look(w.Context())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	maps.DeleteFunc(all, func(id, _ string) bool {
		_, own := ours[id]
		_, reference := w.reference[id]
		lease := strings.Contains(id, "coordination.k8s.io/leases "+w.cfg.MgmtNamespace+"/hypergate-")
		return own || reference || lease || serversOwn(id)
	})
	return all
}

// serversOwn reports whether istiod writes an object in the guest, or an API server writes it when it starts.
func serversOwn(id string) bool {
	return strings.HasSuffix(id, "/istio-ca-root-cert") || strings.HasSuffix(id, "-ca-cert") ||
		strings.Contains(id, ": apiregistration.k8s.io/apiservices ")
}

func (w *chaosRun) istiod() istiod {
	w.Helper()
	d, err := w.mgmt.clients.AppsV1().Deployments(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return istiod{string(d.UID), d.Generation, w.kubelet.started()}
}

// caWatch records every content of the mesh CA's Secret since the installation.
type caWatch struct {
	mu   sync.Mutex
	seen map[string]bool
	pem  []byte
}

// note records a version of the Secret.
func (c *caWatch) note(secret *corev1.Secret) {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		_, _ = fmt.Fprintf(sum, "%s %d ", key, len(secret.Data[key]))
		_, _ = sum.Write(secret.Data[key])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[hex.EncodeToString(sum.Sum(nil))] = true
	c.pem = secret.Data["root-cert.pem"]
}

// only returns a hash of the CA's content, and fails the test if there was more than one content.
func (c *caWatch) only(w *chaosRun) string {
	w.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) != 1 {
		w.Errorf("the mesh CA had %d contents, want 1", len(c.seen))
	}
	return strings.Join(slices.Sorted(maps.Keys(c.seen)), ",")
}

func (c *caWatch) root() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pem) == 0 {
		return []byte("there is none")
	}
	return bytes.Clone(c.pem)
}

// forget clears the record after an uninstallation.
func (c *caWatch) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.pem = map[string]bool{}, nil
}

// knowSecrets starts to collect every content of the Secrets in the management namespace, and other data that the
// guest must not contain.
func (w *chaosRun) knowSecrets() {
	w.Helper()
	w.cas = &caWatch{seen: map[string]bool{}}
	w.secrets.AddName("the name of the management namespace", w.cfg.MgmtNamespace)
	server, err := url.Parse(w.mgmt.plane.Config.Host)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.secrets.AddName("the address of the management API", server.Host)
	w.secrets.AddCertificates("the management API's CA", w.mgmt.plane.Config.CAData)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(w.mgmt.plane.Kubeconfig), "*"))
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(files).NotTo(gomega.BeEmpty())
	for _, file := range append(files, w.mgmt.direct, w.mgmt.gated, w.guest.direct, w.guest.gated) {
		data, err := os.ReadFile(file)
		w.Expect(err).NotTo(gomega.HaveOccurred())
		w.secrets.Add("the file "+filepath.Base(file), data)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.mgmt.clients, 0, informers.WithNamespace(w.cfg.MgmtNamespace))
	add := func(obj any) {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			return
		}
		if secret.Name == model.CASecretName {
			w.cas.note(secret)
		}
		for key, value := range secret.Data {
			w.secrets.Add("the Secret "+secret.Name+"'s "+key, value)
		}
	}
	informer := factory.Core().V1().Secrets().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, now any) { add(now) }})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	w.Cleanup(func() { cancel(); factory.Shutdown() })
	w.Expect(cache.WaitForCacheSync(w.Context().Done(), informer.HasSynced)).To(gomega.BeTrue())
}

// nothingLeaks searches all data of the guest for data of the management side.
func (w *chaosRun) nothingLeaks(after string) {
	w.Helper()
	objects, err := leak.Objects(w.Context(), w.guest.plane.Config)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	keys, err := leak.Keys(w.Context(), w.guest.plane.EtcdURL)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	file, err := leak.File(w.Context(), w.guest.plane.EtcdURL)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	// This check ensures that the search covers real data. A search of nothing would always pass.
	w.Expect(min(len(objects), len(keys))).To(gomega.BeNumerically(">", 150))
	for _, f := range w.secrets.Search(append(append(objects, keys...), file)...) {
		w.Errorf("after %s: %s", after, f)
	}
}
