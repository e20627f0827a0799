package guest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestWhatMattersOfClassDefaults checks which changes of the defaults of a class begin a pass: other pods of
// hypergate's own do, other replicas do not.
func TestWhatMattersOfClassDefaults(t *testing.T) {
	t.Parallel()
	item := func(owner, key, value string) *defaultsItem {
		kept, err := defaultsOnly("us")(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{model.ClassDefaultsLabel: "a", model.OwnerLabel: owner}},
			Data:       map[string]string{"deployment": "spec: {}", key: value},
		})
		if err != nil {
			t.Fatal(err)
		}
		return kept.(*defaultsItem)
	}
	before := item("us", "deployment", "spec: {}")
	for name, c := range map[string]struct {
		after *defaultsItem
		same  bool
	}{
		"no change":      {item("us", "deployment", "spec: {}"), true},
		"other replicas": {item("us", "horizontalPodAutoscaler", "spec: {}"), true},
		"other pods":     {item("us", "deployment", "spec: {replicas: 1}"), false},
		"another owner":  {item("them", "deployment", "spec: {}"), false},
	} {
		if got := before.sameForDecisions(c.after); got != c.same {
			t.Errorf("%s: the same for decisions: %t", name, got)
		}
	}
}
