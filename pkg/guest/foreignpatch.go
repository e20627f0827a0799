package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// foreignPatchTimeout limits a patch of an object that is not hypergate's. It is shorter than the longest timeout of a
// webhook (30 s). A Gateway that cannot be patched in this time is tried again, and delays nothing else.
const foreignPatchTimeout = 10 * time.Second

// PatchForeign sends a patch of an object in the guest that does not belong to hypergate. It is the only method that
// changes such an object. The API server returns a conflict if the object has changed since it was observed. A change
// that a mutating webhook or policy of the guest reverts is an error, too.
func (c *Cluster) PatchForeign(ctx context.Context, p model.ForeignPatch) error {
	ctx, cancel := context.WithTimeout(ctx, foreignPatchTimeout)
	defer cancel()
	write := p.Write()
	var parts []string
	if write.Subresource != "" {
		parts = []string{write.Subresource}
	}
	returned, err := c.dynamic.Resource(write.GVR()).Namespace(p.Key().Namespace).
		Patch(ctx, p.Key().Name, p.Type(), p.JSON(), metav1.PatchOptions{FieldManager: model.FieldManager}, parts...)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", p, answer.Brief(err))
	case p.IsReverted(returned.Object):
		return fmt.Errorf("%s: %w", p, apply.Reverted())
	default:
		return nil
	}
}

// HeldGateways lists the Gateways that the hypergate of this revision holds, of any class. It is for commands. The
// controller watches Gateways instead.
func (c *Cluster) HeldGateways(ctx context.Context) ([]model.ForeignObject, error) {
	own := model.HoldValue(c.cfg.Revision)
	var out []model.ForeignObject
	pages := answer.Pages{Size: gatewayPage, Requests: gatewayPages}
	err := pages.List(metav1.ListOptions{}, func(options metav1.ListOptions) (string, error) {
		page, err := c.listGateways(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			u := &page.Items[i]
			if value := u.GetAnnotations()[model.HoldAnnotation]; value != own {
				continue
			}
			key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
			out = append(out, model.ForeignObject{Key: key, UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()})
		}
		return page.GetContinue(), nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // there are none without their CRD
	case errors.Is(err, answer.ErrManyPages):
		return nil, fmt.Errorf("listing Gateways: the list does not end within %d requests", gatewayPages)
	case err != nil:
		return nil, fmt.Errorf("listing Gateways: %w", answer.Brief(err))
	default:
		return out, nil
	}
}

// gatewayPage is the page size for listing Gateways, and gatewayPages the number of requests.
const (
	gatewayPage  = 100
	gatewayPages = 500
)

func (c *Cluster) listGateways(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, foreignPatchTimeout)
	defer cancel()
	page, err := c.dynamic.Resource(gatewayResource()).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return page, checkIdentities(gatewayResource(), page)
}
