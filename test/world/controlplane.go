package world

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/hypershift"
)

// AddControlPlane serves HyperShift's HostedControlPlanes on the management cluster and makes that of the guest, with its name, which nobody reconciles.
func (w *World) AddControlPlane(ctx context.Context) error {
	crd, err := hypershift.CRD(ctx)
	if err != nil {
		return err
	}
	if _, err := w.MgmtDynamic.Resource(Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")).Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("installing HyperShift's CRD: %w", err)
	}
	text, err := fill("controlplane.yaml", map[string]string{"name": w.GuestName, "number": strconv.Itoa(w.number)})
	if err != nil {
		return err
	}
	plane := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text.Bytes(), &plane.Object); err != nil {
		return fmt.Errorf("reading the HostedControlPlane: %w", err)
	}
	planes := w.MgmtDynamic.Resource(Resource("hypershift.openshift.io", "v1beta1", "hostedcontrolplanes")).Namespace(w.MgmtNamespace)
	var last error
	err = wait.PollUntilContextTimeout(ctx, poll, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, last = planes.Create(ctx, plane, metav1.CreateOptions{})
		return last == nil, nil // its kind is not served at once
	})
	if err != nil {
		return fmt.Errorf("making the HostedControlPlane: %w", last)
	}
	return nil
}
