package world

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/hypershift"
)

// AddControlPlane creates the guest's HostedControlPlane, with the guest's name. No controller reconciles it. For the
// first guest, it also installs the CRD on the management cluster.
func (w *World) AddControlPlane(ctx context.Context) error {
	if w.number == 0 {
		if err := w.serveControlPlanes(ctx); err != nil {
			return err
		}
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
	err = wait.PollUntilContextTimeout(ctx, poll, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = planes.Create(ctx, plane, metav1.CreateOptions{})
		return last == nil, nil // the API server needs time to serve a new kind
	})
	if err != nil {
		return fmt.Errorf("making the HostedControlPlane: %w", last)
	}
	return nil
}

func (w *World) serveControlPlanes(ctx context.Context) error {
	crd, err := hypershift.CRD(ctx)
	if err != nil {
		return err
	}
	if _, err := w.MgmtDynamic.Resource(Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")).
		Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("installing HyperShift's CRD: %w", err)
	}
	return nil
}
