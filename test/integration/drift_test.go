package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/hang"
)

// vandal is the field manager with which a test changes hypergate's objects. It differs from hypergate's, and the
// operation is an update.
const vandal = "vandal"

func TestEachDriftedObjectCostsOneWrite(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	for _, side := range []struct {
		side     model.Side
		client   kubernetes.Interface
		kinds    []model.Kind
		requests *requests
	}{
		{model.SideGuest, w.guest, model.GuestKinds(), w.guestRequests},
		{model.SideMgmt, w.mgmt, model.MgmtKinds(), w.mgmtRequests},
	} {
		for _, kind := range side.kinds {
			if kind.GVK.Kind == "Namespace" {
				continue // created if missing, and not owned by hypergate
			}
			for _, o := range w.ours(side.client, side.side, kind) {
				path := resourcePath(kind, o.Namespace) + "/" + o.Name
				t.Run(fmt.Sprintf("%s/%s/label", side.side, kind.GVK.Kind), func(t *testing.T) {
					w.restored(t, side.client, side.requests, path, func() error {
						return side.client.CoreV1().RESTClient().Patch(types.MergePatchType).RequestURI(path).Param("fieldManager", vandal).
							Body([]byte(`{"metadata":{"labels":{"` + model.OwnerLabel + `":null}}}`)).Do(t.Context()).Error()
					})
				})
				if kind.NeverPrune {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/deleted", side.side, kind.GVK.Kind), func(t *testing.T) {
					w.restored(t, side.client, side.requests, path, func() error {
						return side.client.CoreV1().RESTClient().Delete().RequestURI(path).Do(t.Context()).Error()
					})
				})
			}
		}
	}
}

// restored damages an object of hypergate and checks that hypergate restores it with one write.
func (w *harness) restored(t *testing.T, client kubernetes.Interface, requests *requests, path string, harm func() error) {
	t.Helper()
	g := hang.Gomega(t)
	before := requests.count()
	g.Expect(harm()).To(gomega.Succeed())
	g.Eventually(func() string {
		data, err := client.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(t.Context())
		var o metav1.PartialObjectMetadata
		if err != nil || json.Unmarshal(data, &o) != nil || o.DeletionTimestamp != nil {
			return ""
		}
		return o.Labels[model.OwnerLabel]
	}).WithPolling(10 * time.Millisecond).ShouldNot(gomega.BeEmpty())
	w.settle()
	var toIt []string
	for _, line := range writes(requests.since(before)) {
		// The class's status reports that istiod is created again, and a new service account needs a new token.
		if !strings.Contains(line, "/gatewayclasses/") && !strings.HasSuffix(line, "/token?") {
			toIt = append(toIt, line)
		}
	}
	g.Expect(toIt).To(gomega.ConsistOf(gomega.HavePrefix(http.MethodPatch + " " + path + "?")))
}

func TestForeignObjectsAreUnchanged(t *testing.T) {
	w := newHarness(t)
	w.run()
	w.install("demo")
	before := w.mgmtRequests.count()
	name := w.cfg.IstiodName()
	_, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"third":"party"},"annotations":{"another":"one"}}}`), metav1.PatchOptions{FieldManager: vandal})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.looksAgain()
	w.Expect(writes(w.mgmtRequests.since(before))).To(gomega.BeEmpty())
	service, err := w.mgmt.CoreV1().Services(w.cfg.MgmtNamespace).Get(t.Context(), name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(service.Labels).To(gomega.HaveKeyWithValue("third", "party"))
}

// ours returns the objects of a kind that have hypergate's label.
func (w *harness) ours(client kubernetes.Interface, side model.Side, kind model.Kind) []metav1.PartialObjectMetadata {
	w.Helper()
	data, err := client.CoreV1().RESTClient().Get().
		RequestURI(resourcePath(kind, "") + "?labelSelector=" + model.OwnerLabel + "%3D" + w.cfg.OwnerValue(side)).
		DoRaw(w.Context())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	var list metav1.PartialObjectMetadataList
	w.Expect(json.Unmarshal(data, &list)).To(gomega.Succeed())
	return list.Items
}

func resourcePath(kind model.Kind, namespace string) string {
	prefix := "/apis/" + kind.GVK.Group + "/"
	if kind.GVK.Group == "" {
		prefix = "/api/"
	}
	prefix += kind.GVK.Version + "/"
	if namespace != "" {
		prefix += "namespaces/" + namespace + "/"
	}
	return prefix + kind.Resource
}
