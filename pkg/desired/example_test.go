package desired_test

import (
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// Compute what both sides should hold for one GatewayClass.
func ExampleCompute() {
	source, err := charts.Embedded()
	if err != nil {
		panic(err)
	}
	ca, err := pki.New(time.Now())
	if err != nil {
		panic(err)
	}
	config := model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		ControllerName: "openshift.io/gateway-controller/v1", Revision: "openshift-gateway",
		PilotImage: "registry.example.com/pilot:latest", ProxyImage: "registry.example.com/proxyv2:latest",
		XDS: model.HostPort{Host: "istiod.apps.example.com", Port: 443}, WebhookHost: "gw-webhook-openshift-gateway",
		IstioResources: model.LayeredProductResources(), NetworkPolicies: model.HyperShiftPeers(),
	}
	guest := model.GuestObservation{
		API:     model.GuestAPI{Server: "https://kube-apiserver:6443"},
		Classes: []model.GatewayClass{{Name: "openshift-default"}},
	}
	plan, err := desired.Compute(config, source, model.ManagementObservation{CA: ca}, guest)
	if err != nil {
		panic(err)
	}
	for _, o := range plan.Workload {
		fmt.Println("management side:", o)
	}
	for _, o := range plan.Admission {
		fmt.Println("guest:", o)
	}
	// Output:
	// management side: Deployment clusters-guest1/istiod-openshift-gateway
	// guest: ValidatingWebhookConfiguration hypergate-validator-openshift-gateway
}
