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
	"github.com/hypergate/hypergate/pkg/model"
)

// askAPIServer sends a dry-run request for each CRD that hypergate would take over, and records the response of the
// guest's API server in takeovers. The response depends on the permissions of the kubeconfig's user.
func askAPIServer(
	ctx context.Context, config *rest.Config, cfg model.Config, source *charts.Source, timeout time.Duration, takeovers []takeover,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.Wrap(guest.Limit())
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the guest: %w", err)
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
		wanted.SetLabels(map[string]string{model.OwnerLabel: cfg.OwnerValue(model.SideGuest)})
		options := metav1.ApplyOptions{FieldManager: model.FieldManager, Force: true, DryRun: []string{metav1.DryRunAll}}
		_, err = client.Resource(gvr).Apply(ctx, t.Name, wanted, options)
		takeovers[i].APIServer = answerOf(err, gvr.GroupResource())
	}
	return nil
}

// wantedCRD returns the CRD that hypergate installs under a name.
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

// answerOf returns the answer for the result of a dry run. A user who is not allowed to write CRDs cannot send a dry
// run either. This result says nothing about hypergate's own permissions, so it is NotAsked.
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
