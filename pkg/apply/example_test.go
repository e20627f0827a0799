package apply_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
)

// configMap is an object to apply: an identity, and the body of a server-side apply.
type configMap struct{ namespace, name string }

func (configMap) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

func (c configMap) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: c.name}
}

func (c configMap) JSON() []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap",`+
		`"metadata":{"namespace":%q,"name":%q,"labels":{"example.com/owner":"me"}}}`, c.namespace, c.name)
}

// Apply objects, and prune those of earlier calls that are no longer wanted. A second call writes nothing: the watches
// know that the objects are as planned.
func ExampleApply() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cluster, err := apply.New(&rest.Config{Host: "https://api.example.com:6443"}, apply.Options{
		Name: "example", Namespace: "default", FieldManager: "example", OwnerKey: "example.com/owner", OwnerValue: "me",
		Kinds: []apply.Kind{{GVK: configMap{}.GVK(), Resource: "configmaps", Namespaced: true, Prune: true}},
	})
	if err != nil {
		panic(err)
	}
	if err := cluster.Start(ctx, func() {}); err != nil {
		panic(err)
	}
	wanted := []configMap{{"default", "settings"}}
	report := apply.Apply(ctx, cluster, wanted)
	if report.Complete() {
		report = cluster.Prune(ctx, apply.IDs(wanted)...)
	}
	fmt.Println(report)
}
