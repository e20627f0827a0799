package apply

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Ours says whether an object is ours: it carries our label, or we applied fields to it. Who takes one away leaves the other.
func (c *Cluster) Ours(o metav1.Object) bool {
	return o.GetLabels()[c.opts.OwnerKey] == c.opts.OwnerValue || c.fields().hash(o.GetManagedFields()) != 0
}
