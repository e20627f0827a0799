package app

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/guest"
)

// askAPIServer asks the guest's API server, by a dry run, whether it would let each CRD be taken over that hypergate would take over. It judges
// by who asks: the user of the kubeconfig.
func askAPIServer(ctx context.Context, config *rest.Config, cfg desired.Config, source *charts.Source, timeout time.Duration, takeovers []takeover) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.Wrap(guest.Limit())
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the guest: %w", err)
	}
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for i, t := range takeovers {
		if t.Verdict != string(crds.Adopt) {
			continue
		}
		wanted, err := wantedCRD(source, t.Name)
		if err != nil {
			return err
		}
		wanted.SetLabels(map[string]string{desired.OwnerLabel: cfg.OwnerValue(desired.SideGuest)})
		_, err = client.Resource(gvr).Apply(ctx, t.Name, wanted, metav1.ApplyOptions{FieldManager: desired.FieldManager, Force: true, DryRun: []string{metav1.DryRunAll}})
		takeovers[i].APIServer = answerOf(err, gvr.GroupResource())
	}
	return nil
}

// wantedCRD is the CRD that hypergate installs.
func wantedCRD(source *charts.Source, name string) (*unstructured.Unstructured, error) {
	if bundle := crds.GatewayAPI(); bundle.Has(name) {
		return bundle.Object(name)
	}
	list, err := desired.IstioCRDs(source, []string{name})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// answerOf is what a dry run ended with. Who may not write CRDs may not ask either, and learns nothing about hypergate.
func answerOf(err error, resource schema.GroupResource) answer {
	if err == nil {
		return answer{Result: accepted}
	}
	cause := apply.Classify(err, "patch", resource)
	switch cause.Class() {
	case apply.Forbidden, apply.Unauthorized, apply.Unreachable, apply.Cancelled:
		return answer{Result: notAsked, Message: "the user of this kubeconfig: " + cause.String()}
	default:
		return answer{Result: refused, Message: cause.String() + ": " + cause.Detail()}
	}
}
