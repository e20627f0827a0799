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

	"github.com/hypergate/hypergate/pkg/model"
)

// StatusTarget is a HostedControlPlane that conditions can be reported to.
type StatusTarget struct {
	model.ControlPlane
	// Conditions are the conditions that hypergate wrote.
	Conditions []metav1.Condition
	// APIServer is the status of HyperShift's condition for the guest's kube-apiserver. It is empty without such a
	// condition.
	APIServer metav1.ConditionStatus
}

// apiServerCondition is a condition of HyperShift (api/hypershift/v1beta1/hostedcluster_conditions.go).
const apiServerCondition = "KubeAPIServerAvailable"

// StatusTargets returns all HostedControlPlanes of the namespace from the watch, sorted by name. If there is more
// than one, each gets a report about this. A HostedControlPlane that could not be read has little more than its
// identity.
func (c *Cluster) StatusTargets() []StatusTarget {
	if c.controlPlanes == nil || c.controlPlanes.absent() {
		return nil
	}
	var out []StatusTarget
	for _, obj := range c.controlPlanes.watch.List() {
		if s, is := obj.(*shownControlPlane); is {
			target := s.target
			target.NotEnabled, target.RemovalID = c.cfg.NotEnabled, c.cfg.RemovalID
			out = append(out, target)
		}
	}
	slices.SortFunc(out, func(a, b StatusTarget) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// readStatusTarget returns the data that is needed to report to a HostedControlPlane. value is the rest of what was
// read from it.
func readStatusTarget(u *unstructured.Unstructured, value model.ControlPlane) StatusTarget {
	value.Name, value.UID, value.Deleting = u.GetName(), u.GetUID(), u.GetDeletionTimestamp() != nil
	out := StatusTarget{ControlPlane: value}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // an unexpected form counts as: nothing reported so far
	for _, item := range list {
		var read metav1.Condition
		fields, is := item.(map[string]any)
		if !is || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &read) != nil {
			continue
		}
		switch {
		case strings.HasPrefix(read.Type, model.ConditionDomain):
			out.Conditions = append(out.Conditions, read)
		case read.Type == apiServerCondition:
			out.APIServer = read.Status
		}
	}
	return out
}

// reportTries is the maximum number of attempts to write a report in case of conflicts with other writers.
const reportTries = 5

// ReportConditions sets conditions of a HostedControlPlane. It keeps all other conditions and unknown fields: it
// reads the current object, and writes on the condition that the object has not changed since.
//
// It does nothing if the HostedControlPlane is gone, is being deleted, or was replaced by another one.
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
	_, err = client.Patch(ctx, to.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: model.FieldManager}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setConditions returns list with the given conditions set, and reports whether this changes the list. Other entries
// stay unchanged, whatever their form. A condition keeps its transition time as long as its status stays the same.
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
