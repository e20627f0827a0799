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

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/test/leak"
	"github.com/hypergate/hypergate/test/untouched"
)

// recovery is how long after the end of a fault both sides may take until they are as planned.
const recovery = 30 * time.Second

// before is what a fault must not change.
type before struct {
	others map[string]string
	istiod istiod
	ca     string
}

// istiod tells one istiod from another: its Deployment, and the process that the kubelet runs.
type istiod struct {
	UID        string
	Generation int64
	Starts     int
}

// remember notes what a fault must not change.
func (w *world) remember() before {
	w.Helper()
	return before{others: w.notOurs(), istiod: w.istiod(), ca: w.cas.only(w)}
}

// check is the one check of all faults. It returns how long after the end of the fault both sides were as planned.
func (w *world) check(f fault, was before, ended time.Time) time.Duration {
	w.Helper()
	took := w.asPlanned(ended)
	if took > recovery {
		w.Errorf("%s: both sides were as planned %s after its end, want at most %s", f.name, took, recovery)
	}
	if now := w.cas.only(w); now != was.ca && !f.installs {
		w.Errorf("%s: the mesh CA is another one", f.name)
	}
	want := was.istiod
	if f.restartsIstiod {
		want.Starts++
	}
	if now := w.istiod(); now != want && !f.installs {
		w.Errorf("%s: istiod is %+v, want %+v", f.name, now, want)
	}
	if err := untouched.Compare(was.others, w.notOurs(), []string{"management: /configmaps " + w.cfg.MgmtNamespace + "/foreign"}); err != nil {
		w.Errorf("%s: %v", f.name, err)
	}
	w.nothingLeaks(f.name)
	return took
}

// asPlanned waits until both sides are as the reference, and returns how long after a moment that was.
func (w *world) asPlanned(since time.Time) time.Duration {
	w.Helper()
	var took time.Duration
	w.Eventually(func() string {
		now, err := w.look(w.Context())
		took = time.Since(since)
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(w.reference, now)
	}).Should(gomega.BeEmpty(), "what differs from an undisturbed installation")
	return took.Round(10 * time.Millisecond)
}

// isAsPlanned reports whether both sides are as the reference now.
func (w *world) isAsPlanned() bool {
	now, err := w.look(w.Context())
	return err == nil && maps.Equal(w.reference, now)
}

// settled is what both sides have once they are the same for a while.
func (w *world) settled() map[string]string {
	w.Helper()
	return untouched.Settled(w, time.Second, func() map[string]string {
		now, err := w.look(w.Context())
		w.Expect(err).NotTo(gomega.HaveOccurred())
		return now
	})
}

// seen is an object as it was when its resourceVersion was this.
type seen struct{ version, text string }

// look is what hypergate has on both sides, without what differs between two installations.
func (w *world) look(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := map[string]string{}
	for _, s := range w.sides() {
		for _, kind := range s.kinds {
			gvr := kind.GVK.GroupVersion().WithResource(kind.Resource)
			if err := w.lookAt(ctx, s, gvr, desired.OwnerLabel+"="+w.cfg.OwnerValue(s.name), out); err != nil {
				return nil, err
			}
		}
	}
	claims := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	classes := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	if err := w.lookAt(ctx, w.guest, claims, desired.OwnershipLabel, out); err != nil {
		return nil, err
	}
	return out, w.lookAt(ctx, w.guest, classes, "", out)
}

// lookAt adds the objects of a resource. Only those that changed are read as a whole.
func (w *world) lookAt(ctx context.Context, s *side, gvr schema.GroupVersionResource, selector string, into map[string]string) error {
	list, err := s.meta.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil // its CRD is not there yet
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

// rootHash is an annotation that follows from the mesh CA.
const rootHash = "gateway.hypergate.dev/ca-root-hash"

// times are in conditions, annotations and messages.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// normal is an object without what differs between two installations: versions, UIDs, times, and what the API server
// chooses. Of the managed fields hypergate's own stay.
func normal(o *unstructured.Unstructured) string {
	var managed []any
	for _, f := range o.GetManagedFields() {
		if strings.HasPrefix(f.Manager, desired.FieldManager) && f.FieldsV1 != nil {
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
	if o.GetKind() != "GatewayClass" {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	if data, found, _ := unstructured.NestedMap(o.Object, "data"); found && o.GetKind() == "Secret" {
		o.Object["data"] = slices.Sorted(maps.Keys(data))
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // it came as JSON
	}
	return times.ReplaceAllString(string(text), "<time>")
}

// notOurs is what there is on both sides beside what hypergate has, and what hypergate may always write: its Lease,
// and conditions of the class.
func (w *world) notOurs() map[string]string {
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

// serversOwn is what istiod writes in the guest, and what an API server writes when it starts.
func serversOwn(id string) bool {
	return strings.HasSuffix(id, "/istio-ca-root-cert") || strings.HasSuffix(id, "-ca-cert") || strings.Contains(id, ": apiregistration.k8s.io/apiservices ")
}

func (w *world) istiod() istiod {
	w.Helper()
	d, err := w.mgmt.clients.AppsV1().Deployments(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.IstiodName(), metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	return istiod{string(d.UID), d.Generation, w.kubelet.started()}
}

// caWatch knows every content that the Secret of the mesh CA had since the installation.
type caWatch struct {
	mu   sync.Mutex
	seen map[string]bool
	pem  []byte
}

// note takes a version of the Secret.
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

// only is the one CA that there was.
func (c *caWatch) only(w *world) string {
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

// forget is for a CA that was uninstalled.
func (c *caWatch) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.pem = map[string]bool{}, nil
}

// knowSecrets collects, from now on, every content of a Secret of the management namespace, and what else the guest
// must not hold.
func (w *world) knowSecrets() {
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
		if secret.Name == desired.CASecretName {
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

// nothingLeaks searches all that the guest holds for what is the management side's.
func (w *world) nothingLeaks(after string) {
	w.Helper()
	objects, err := leak.Objects(w.Context(), w.guest.plane.Config)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	keys, err := leak.Keys(w.Context(), w.guest.plane.EtcdURL)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	file, err := leak.File(w.Context(), w.guest.plane.EtcdURL)
	w.Expect(err).NotTo(gomega.HaveOccurred())
	// A search of nothing finds nothing.
	w.Expect(min(len(objects), len(keys))).To(gomega.BeNumerically(">", 150))
	for _, f := range w.secrets.Search(append(append(objects, keys...), file)...) {
		w.Errorf("after %s: %s", after, f)
	}
}
