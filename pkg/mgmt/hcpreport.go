package mgmt

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/desired"
)

// StatusTarget is a HostedControlPlane that may be told how things stand.
type StatusTarget struct {
	desired.ControlPlane
	// Conditions are those that hypergate has put there.
	Conditions []metav1.Condition
	// APIServer is what HyperShift says there of the guest's kube-apiserver; empty when nothing.
	APIServer metav1.ConditionStatus
}

// apiServerCondition is HyperShift's (api/hypershift/v1beta1/hostedcluster_conditions.go).
const apiServerCondition = "KubeAPIServerAvailable"

// StatusTargets are all HostedControlPlanes of the namespace, by name, as the watch shows them: where there is more than one, each is told so. One that
// could not be read has nothing but its identity.
func (c *Cluster) StatusTargets() []StatusTarget {
	if c.controlPlanes == nil || c.controlPlanes.absent() {
		return nil
	}
	var out []StatusTarget
	for _, obj := range c.controlPlanes.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			out = append(out, s.addressee)
		}
	}
	slices.SortFunc(out, func(a, b StatusTarget) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// readStatusTarget reads what is needed to report to a HostedControlPlane; value is what else was read of it.
func readStatusTarget(u *unstructured.Unstructured, value desired.ControlPlane) StatusTarget {
	value.Name, value.UID, value.Deleting = u.GetName(), u.GetUID(), u.GetDeletionTimestamp() != nil
	out := StatusTarget{ControlPlane: value}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another form: nothing is known to have been told
	for _, item := range list {
		var read metav1.Condition
		fields, is := item.(map[string]any)
		if !is || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &read) != nil {
			continue
		}
		switch {
		case strings.HasPrefix(read.Type, desired.ConditionDomain):
			out.Conditions = append(out.Conditions, read)
		case read.Type == apiServerCondition:
			out.APIServer = read.Status
		}
	}
	return out
}

// reportTries is how often a report is written while others write to the HostedControlPlane at the same time.
const reportTries = 5

// ReportConditions sets conditions of a HostedControlPlane, and keeps all others and whatever else newer ones have: they are read as they are now, and
// written on condition that nobody has written meanwhile. One that is gone, is being deleted, or is another one by now is left alone.
func (c *Cluster) ReportConditions(ctx context.Context, to StatusTarget, conditions []metav1.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var err error
	for range reportTries {
		if err = c.reportOnce(ctx, to, conditions); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("reporting to HostedControlPlane %s: %w", to.Name, err)
	}
	return nil
}

func (c *Cluster) reportOnce(ctx context.Context, to StatusTarget, conditions []metav1.Condition) error {
	client := c.controlPlanes.client()
	now, err := client.Get(ctx, to.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case now.GetUID() != to.UID || now.GetDeletionTimestamp() != nil:
		return nil
	}
	list, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
	if err != nil {
		return err
	}
	merged, changed, err := setConditions(list, conditions)
	if err != nil || !changed {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": now.GetResourceVersion()},
		"status":   map[string]any{"conditions": merged},
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, to.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: desired.FieldManager}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setConditions are the conditions of a list with some set, and whether that changes any. The others stay as they stand there, whatever they have. As
// long as a condition keeps its status, it keeps its time.
func setConditions(list []any, conditions []metav1.Condition) (merged []any, changed bool, err error) {
	merged = slices.Clone(list)
	for _, c := range conditions {
		i := slices.IndexFunc(merged, func(item any) bool {
			fields, _ := item.(map[string]any)
			return fields["type"] == c.Type
		})
		if i >= 0 {
			var old metav1.Condition
			if fields, is := merged[i].(map[string]any); is && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &old) == nil {
				if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
					continue
				}
				both := []metav1.Condition{old}
				meta.SetStatusCondition(&both, c)
				c = both[0]
			}
		}
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return nil, false, err
		}
		changed = true
		if i >= 0 {
			merged[i] = item
		} else {
			merged = append(merged, any(item))
		}
	}
	return merged, changed, nil
}
