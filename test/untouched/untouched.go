// Package untouched checks that a test did not change objects of others in a cluster. It notes a value for every
// object that changes with the object.
package untouched

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/summary"
)

// Scope defines which objects are noted, and how.
type Scope struct {
	// But is a namespace that is left out, with its content and with cluster-scoped objects of the same name. Empty
	// means none.
	But string
	// Nodes means that the cluster has nodes and controllers. They write some objects all the time, so only the other
	// fields of these objects are noted.
	Nodes bool
}

// Note adds a value for each object, with the key prefix + "GROUP/RESOURCE NAMESPACE/NAME". The value is its
// resourceVersion, or a digest of the noted fields.
func Note(ctx context.Context, config *rest.Config, scope Scope, prefix string, into map[string]string) error {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // warnings about deprecated kinds
	resources, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	lists, err := resources.ServerPreferredResources()
	if err != nil {
		return fmt.Errorf("asking for all resources: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			if resource.Name == "events" || resource.Name == "ipaddresses" { // each Service has an IPAddress
				continue
			}
			found, err := client.Resource(gv.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("listing %s: %w", resource.Name, err)
			}
			id := gv.Group + "/" + resource.Name
			for i := range found.Items {
				if o := &found.Items[i]; !scope.leavesOut(id, o) {
					into[prefix+id+" "+o.GetNamespace()+"/"+o.GetName()] = scope.noteOf(id, o)
				}
			}
		}
	}
	return nil
}

const leases = "coordination.k8s.io/leases"

func (s Scope) leavesOut(resource string, o *unstructured.Unstructured) bool {
	if resource == leases && o.GetNamespace() == metav1.NamespaceSystem {
		return true // the API server's own Leases
	}
	return s.But != "" && (o.GetNamespace() == s.But || o.GetNamespace() == "" && o.GetName() == s.But)
}

// noteOf returns the resourceVersion, or a digest of an object. The digest leaves out the fields that kubelets and
// controllers write all the time: the state of pods, and the renewal time of Leases. It also leaves out the summary of
// hypergate's last pass, which hypergate writes with the next renewal of its Lease.
func (s Scope) noteOf(resource string, o *unstructured.Unstructured) string {
	busy := []string{
		leases, "/nodes", "/pods", "/endpoints", "apps/deployments", "apps/replicasets", "apps/statefulsets",
		"discovery.k8s.io/endpointslices",
	}
	if !s.Nodes || !slices.Contains(busy, resource) {
		return o.GetResourceVersion()
	}
	for _, field := range [][]string{
		// of any object
		{"metadata", "resourceVersion"},
		{"metadata", "managedFields"},
		{"status"},
		{"spec", "renewTime"},
		{"metadata", "annotations", summary.Annotation},
		// of endpoints
		{"metadata", "generation"},
		{"endpoints"},
		{"subsets"},
		{"metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"},
	} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	if len(o.GetAnnotations()) == 0 {
		o.SetAnnotations(nil)
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // impossible: the object came as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
