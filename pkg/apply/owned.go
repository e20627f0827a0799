package apply

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Ours reports whether an object is owned: it carries the owner label, or our field manager applied fields to it.
// Both are checked, because another client that removes one of them leaves the other.
func (c *Cluster) Ours(o metav1.Object) bool {
	return o.GetLabels()[c.opts.OwnerKey] == c.opts.OwnerValue || c.fields().hash(o.GetManagedFields()) != 0
}
