package hypershift

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/cluster/servers"
)

// api is the Go module that contains HyperShift's CRDs.
const api = "github.com/openshift/hypershift/api"

// ControlPlanes returns the resource of HostedControlPlanes.
func ControlPlanes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedcontrolplanes"}
}

// ControlPlaneYAML returns a HostedControlPlane that the CRD accepts. more adds fields to its spec, each after a comma.
func ControlPlaneYAML(name, more string) string {
	return `{apiVersion: hypershift.openshift.io/v1beta1, kind: HostedControlPlane, metadata: {name: ` + name + `},
		spec: {releaseImage: "quay.io/r:4.21", issuerURL: "https://kubernetes.default.svc",
		pullSecret: {name: pull-secret}, sshKey: {name: ssh-key},
		etcd: {managementType: Managed, managed: {storage: {type: PersistentVolume, persistentVolume: {size: 8Gi}}}},
		dns: {baseDomain: example.com}, infraID: guest1-abcde, clusterID: 5f7c0000-0000-4000-8000-000000000000,
		controllerAvailabilityPolicy: SingleReplica, platform: {type: None},
		services: [{service: APIServer, servicePublishingStrategy: {type: LoadBalancer}},
			{service: OAuthServer, servicePublishingStrategy: {type: Route}},
			{service: Konnectivity, servicePublishingStrategy: {type: Route}},
			{service: Ignition, servicePublishingStrategy: {type: Route}}]` + more + `}}`
}

// CRD returns HyperShift's own CustomResourceDefinition of HostedControlPlanes. It gets the module if the module cache
// does not have it: only a test of pkg/mgmt imports it, so the build of a caller does not get it.
func CRD(ctx context.Context) (*unstructured.Unstructured, error) {
	root, err := servers.ModuleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := servers.ModuleDir(ctx, root, api)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(
		filepath.Join(dir, "hypershift", "v1beta1", "zz_generated.featuregated-crd-manifests",
			"hostedcontrolplanes.hypershift.openshift.io", "AAA_ungated.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading HyperShift's CRD: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		return nil, fmt.Errorf("reading HyperShift's CRD: %w", err)
	}
	crd.SetAnnotations(nil) // one annotation has a name that no API server accepts
	return crd, nil
}
