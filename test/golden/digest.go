package golden

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Digest returns a short hash of an object. Two tests that cannot run in one process compare whole objects by it. The
// data of a Secret does not count, and neither do values that only a cluster has: the hashes of the guest's address and
// of the mesh roots.
func Digest(tb testing.TB, u *unstructured.Unstructured) string {
	tb.Helper()
	copied := u.DeepCopy()
	if copied.GetKind() == "Secret" {
		delete(copied.Object, "data")
		unstructured.RemoveNestedField(copied.Object, "metadata", "annotations")
	}
	for _, hash := range []string{"guest-api-hash", "ca-root-hash"} {
		unstructured.RemoveNestedField(copied.Object, "spec", "template", "metadata", "annotations", "gateway.hypergate.dev/"+hash)
	}
	data, err := json.Marshal(copied.Object) // the keys are sorted
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}
