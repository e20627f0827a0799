package migration

// Leftover is what a finished migration leaves in the guest. hypergate deletes nothing of the guest.
type Leftover struct {
	Object Object `json:"object"`
	// Seen reports whether the object exists. If not, it can exist: hypergate reads no Secret, and not each namespace.
	Seen bool `json:"seen"`
	// Message says what the object is. Remover is who removes it, and NextStep how.
	Message  string `json:"message"`
	Remover  string `json:"remover"`
	NextStep string `json:"nextStep"`
}

// guestAdministrator is who removes what no controller removes.
const guestAdministrator = "the guest's administrator"

// Leftovers returns what can be left of the origin's installation after it was removed: what istiod and its installers
// do not remove themselves.
func (i Inventory) Leftovers() []Leftover {
	out := []Leftover{
		{
			// istio security/pkg/pki/ca/ca.go, CASecret
			Object:  Object{Kind: "Secret", Namespace: i.Namespace, Name: "istio-ca-secret"},
			Message: "the key of the CA that the istiod in the guest made for itself",
			Remover: guestAdministrator, NextStep: "delete it if no other istiod runs in its namespace",
		},
		{
			// istio pilot/pkg/serviceregistry/kube/controller/namespacecontroller.go
			Object:  Object{Kind: "ConfigMap", Name: "istio-ca-root-cert"},
			Message: "the roots of that CA, in each namespace",
			Remover: guestAdministrator, NextStep: "delete it in each namespace if the guest has no other istiod",
		},
		{
			// helm pkg/storage/driver/secrets.go: the names of a release's Secrets begin with this
			Object:   Object{Kind: "Secret", Namespace: i.Namespace, Name: "sh.helm.release.v1." + i.Revision + "-istiod"},
			Message:  "the Helm release, if the Deployment was deleted without it",
			Remover:  "who installed istiod: the Sail operator, the ingress operator, or a user of Helm",
			NextStep: "run helm list in its namespace, and helm uninstall if it has a release of istiod",
		},
	}
	out = append(out, Leftover{
		Object:  Object{Kind: "ClusterRole", Name: "hypergate-migration"},
		Message: "permissions that only a migration needs, and the ClusterRole hypergate-migration-writes",
		Remover: guestAdministrator, NextStep: "run kubectl delete -k deploy/rbac/migration",
	})
	if name := i.Origin.Subscription; name != "" {
		out = append(out, Leftover{
			// cluster-ingress-operator, pkg/operator/controller/gatewayclass/subscription.go: it never removes this
			Object: Object{Kind: "Subscription", Namespace: SubscriptionNamespace, Name: name}, Seen: true,
			Message: "the Sail operator, which OLM keeps up to date",
			Remover: guestAdministrator, NextStep: "remove it with OLM if nothing else in the guest uses Service Mesh",
		})
	}
	return out
}

// clean returns a leftover with texts of limited size.
func (l Leftover) clean() Leftover {
	l.Object = l.Object.clean()
	l.Message, l.Remover, l.NextStep = limited(l.Message), limited(l.Remover), limited(l.NextStep)
	return l
}
