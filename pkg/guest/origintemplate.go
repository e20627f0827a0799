package guest

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// revisionAnnotation is the number of a ReplicaSet of a Deployment (kubernetes pkg/controller/deployment/util).
const revisionAnnotation = "deployment.kubernetes.io/revision"

// OriginTemplate returns the latest pod template of a Gateway's Deployment that has the address of the origin. It is an
// error if there is none.
func (c *Cluster) OriginTemplate(ctx context.Context, deployment model.ForeignObject, gateway string) (map[string]any, error) {
	r := &inventoryReader{c: c}
	found := latestTemplate{address: migration.OriginAddress(c.cfg), revision: -1}
	_, err := r.ownSets(ctx, deployment, gateway, func(u *unstructured.Unstructured) bool {
		found.add(u)
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case len(r.out.Unread) > 0:
		return nil, fmt.Errorf("the guest does not permit: %s", r.out.Unread[0])
	case found.template == nil:
		return nil, NoTemplateError{deployment.Key}
	}
	unstructured.RemoveNestedField(found.template, "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey)
	return found.template, nil
}

// latestTemplate is the pod template of the latest ReplicaSet with an address. It is a part of that ReplicaSet, so that
// nothing is copied: an object that is nearly as large as a page is in memory once.
type latestTemplate struct {
	address  string
	revision int
	template map[string]any
}

const (
	// maxTemplate is the size limit of a pod template that is restored, and of an object with one that is converted, in
	// bytes of memory (estimate). That of a gateway has less than 100 KiB.
	maxTemplate = 1 << 20
	// templateValue is about what each value in it takes, besides its text.
	templateValue = 64
)

// convert sets into to an object with a pod template. It is an error if the object is too large: an empty container
// takes about six times as much memory after the conversion.
func convert(u *unstructured.Unstructured, into any) error {
	if memoryOf(u.Object, maxTemplate) < 0 {
		return fmt.Errorf("it needs more than %d MiB of memory", maxTemplate>>20)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// add replaces the template if that of a ReplicaSet is later. One that is too large counts as missing.
func (l *latestTemplate) add(set *unstructured.Unstructured) {
	number, _, _ := unstructured.NestedString(set.Object, "metadata", "annotations", revisionAnnotation)
	revision, err := strconv.Atoi(number)
	if err != nil || revision <= l.revision {
		return
	}
	field, _, _ := unstructured.NestedFieldNoCopy(set.Object, "spec", "template")
	template, is := field.(map[string]any)
	if !is || memoryOf(template, maxTemplate) < 0 || caAddress(template) != l.address {
		return
	}
	l.revision, l.template = revision, template
}

// memoryOf returns what is left of a limit, in bytes of memory, after a value of JSON. It is negative if the value is
// larger.
func memoryOf(value any, left int) int {
	left -= templateValue
	switch value := value.(type) {
	case string:
		left -= len(value)
	case []any:
		for _, of := range value {
			if left = memoryOf(of, left); left < 0 {
				return left
			}
		}
	case map[string]any:
		for key, of := range value {
			if left = memoryOf(of, left-len(key)); left < 0 {
				return left
			}
		}
	default:
	}
	return left
}

// caAddress is addressOf for a pod template that was not converted: empty containers take more memory then.
func caAddress(template map[string]any) string {
	containers, _, _ := unstructured.NestedFieldNoCopy(template, "spec", "containers")
	for _, container := range list(containers) {
		fields, _ := container.(map[string]any)
		for _, env := range list(fields["env"]) {
			variable, _ := env.(map[string]any)
			if value, _ := variable["value"].(string); variable["name"] == "CA_ADDR" {
				return bounded(value, maxName)
			}
		}
	}
	return ""
}

// list returns a value of JSON that should be a list.
func list(value any) []any {
	out, _ := value.([]any)
	return out
}
