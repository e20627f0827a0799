package guest

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxNamespace, maxUID and maxIdentity are how many bytes the namespace, the UID and the version of an object may
	// have. kube-apiserver permits 63 for a namespace. It makes UIDs of 36, and versions of up to 20. The state of a
	// migration has no longer UID.
	maxNamespace = 63
	maxUID       = 64
	maxIdentity  = 128
)

// checkIdentity returns an error for an object whose identity is longer than kube-apiserver permits. The guest can
// replace the API server of a group by an APIService. What such a server returns must not be kept as a name.
func checkIdentity(u metav1.Object) error {
	for _, part := range []struct {
		what, value string
		most        int
	}{
		{"name", u.GetName(), maxName},
		{"namespace", u.GetNamespace(), maxNamespace},
		{"UID", string(u.GetUID()), maxUID},
		{"resourceVersion", u.GetResourceVersion(), maxIdentity},
	} {
		if len(part.value) > part.most {
			return fmt.Errorf("the API server returned an object whose %s has %d bytes, more than %d: %q",
				part.what, len(part.value), part.most, bounded(part.value, shownOfIdentity))
		}
	}
	return nil
}

// checkIdentities checks the objects of a list.
func checkIdentities(gvr schema.GroupVersionResource, list *unstructured.UnstructuredList) error {
	for i := range list.Items {
		if err := checkIdentity(&list.Items[i]); err != nil {
			return fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
		}
	}
	return nil
}

// shownOfIdentity is how many bytes of a part that is too long are in the error.
const shownOfIdentity = 64
