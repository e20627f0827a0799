package mgmt

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	hypershiftv1beta1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/fromyaml"
)

// hcp returns a HostedControlPlane as HyperShift creates it. metadata, spec and status are YAML that is merged into
// it.
func hcp(t *testing.T, metadata, spec, status string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedControlPlane"}}
	for field, text := range map[string][2]string{
		"metadata": {`{name: guest1, namespace: clusters-guest1, uid: 7f3a}`, metadata},
		"spec": {`{releaseImage: "quay.io/r:4.21", issuerURL: https://kubernetes.default.svc, pullSecret: {name: ` +
			`pull-secret}, sshKey: {name: ssh-key}, etcd: {managementType: Managed},
			dns: {baseDomain: example.com}, infraID: guest1-abcde, clusterID: 5f7c, controllerAvailabilityPolicy: ` +
			`HighlyAvailable, platform: {type: None}, services: []}`, spec},
		"status": {`{}`, status},
	} {
		merged := map[string]any{}
		for _, part := range text {
			more := map[string]any{}
			if err := yaml.Unmarshal([]byte(part), &more); err != nil {
				t.Fatalf("%s: %v", part, err)
			}
			maps.Copy(merged, more)
		}
		u.Object[field] = merged
	}
	data, err := u.MarshalJSON() // numbers get the types that they have from an API server
	if err != nil {
		t.Fatal(err)
	}
	return fromyaml.Object(t, data)
}

// plain returns the expected result of reading hcp without additions.
func plain() model.ControlPlane {
	return model.ControlPlane{
		Name: "guest1", UID: "7f3a", Platform: "None", Availability: model.HighlyAvailable,
		ReleaseImage: "quay.io/r:4.21", GuestReleaseImage: "quay.io/r:4.21", ClusterID: "5f7c", InfraID: "guest1-abcde",
	}
}

// controlPlaneCase is a part of a HostedControlPlane, and how it changes what is read.
type controlPlaneCase struct {
	metadata, spec, status string
	want                   func(*model.ControlPlane)
}

// TestReadControlPlanePods checks the fields and annotations that decide about pods.
func TestReadControlPlanePods(t *testing.T) {
	checkReadControlPlane(t, map[string]controlPlaneCase{
		"as little as there may be": {want: func(*model.ControlPlane) {}},
		"one replica": {
			spec: `controllerAvailabilityPolicy: SingleReplica`,
			want: func(c *model.ControlPlane) { c.Availability = model.SingleReplica },
		},
		"a policy of the future": {
			spec: `controllerAvailabilityPolicy: FiveReplicas`,
			want: func(c *model.ControlPlane) { c.Availability = "FiveReplicas" },
		},
		"pods": {
			spec: `{nodeSelector: {role: infra}, labels: {team: a}, tolerations: [{key: k, operator: Equal, value: ` +
				`v, effect: NoExecute, tolerationSeconds: 30}]}`,
			want: func(c *model.ControlPlane) {
				c.NodeSelector, c.Labels = map[string]string{"role": "infra"}, map[string]string{"team": "a"}
				c.Tolerations = []corev1.Toleration{
					{Key: "k", Operator: "Equal", Value: "v", Effect: "NoExecute", TolerationSeconds: new(int64(30))},
				}
			},
		},
		"annotations": {
			metadata: `annotations: {hypershift.openshift.io/control-plane-priority-class: mine, ` +
				`hypershift.openshift.io/restart-date: "2026-11-21",
				hypershift.openshift.io/topology: dedicated-request-serving-components, ` +
				`hypershift.openshift.io/request-serving-node-additional-selector: "size=large,zone=a"}`,
			want: func(c *model.ControlPlane) {
				c.PriorityClass, c.RestartDate, c.DedicatedRequestServing = "mine", "2026-11-21", true
				c.ServingNodes = map[string]string{"size": "large", "zone": "a"}
			},
		},
		"another topology": {metadata: `annotations: {hypershift.openshift.io/topology: scattered}`, want: func(*model.ControlPlane) {}},
		"requests": {
			metadata: `annotations: ` +
				`{resource-request-override.hypershift.openshift.io/istiod-openshift-gateway.discovery: "cpu=50m, memory=200Mi",
				resource-request-override.hypershift.openshift.io/kube-apiserver.kube-apiserver: cpu=9}`,
			want: func(c *model.ControlPlane) {
				c.Requests = map[string]map[string]string{"discovery": {"cpu": "50m", "memory": "200Mi"}}
			},
		},
		"requests that are none": {
			metadata: `annotations: ` +
				`{resource-request-override.hypershift.openshift.io/istiod-openshift-gateway.discovery: ` +
				`"cpu=much,memory,disk=1Gi"}`,
			want: func(c *model.ControlPlane) {
				c.Requests = map[string]map[string]string{"discovery": {"disk": "1Gi"}}
				c.UnreadFields = []string{
					`annotation ` +
						`resource-request-override.hypershift.openshift.io/istiod-openshift-gateway.discovery: ` +
						`"memory" is not <key>=<value>`,
					`annotation ` +
						`resource-request-override.hypershift.openshift.io/istiod-openshift-gateway.discovery: ` +
						`"much" is not a quantity of cpu`,
				}
			},
		},
	})
}

// TestReadControlPlaneReleases checks the release images and versions.
func TestReadControlPlaneReleases(t *testing.T) {
	checkReadControlPlane(t, map[string]controlPlaneCase{
		"a control plane ahead of its guest": {
			spec:   `controlPlaneReleaseImage: "quay.io/r:4.21.3"`,
			status: `{versionStatus: {desired: {version: 4.21.0, image: "quay.io/r:4.21"}, observedGeneration: 1}}`,
			want:   func(c *model.ControlPlane) { c.ReleaseImage = "quay.io/r:4.21.3" },
		},
		"a control plane that reports its version": {
			spec: `controlPlaneReleaseImage: "quay.io/r:4.21.3"`,
			status: `{controlPlaneVersion: {desired: {version: 4.21.3, image: "quay.io/r:4.21.3"}}, versionStatus: ` +
				`{desired: {version: 4.21.0, image: "quay.io/r:4.21"}, observedGeneration: 1}}`,
			want: func(c *model.ControlPlane) { c.ReleaseImage, c.ReleaseVersion = "quay.io/r:4.21.3", "4.21.3" },
		},
		"the version of the one release": {
			status: `{versionStatus: {desired: {version: 4.21.0, image: "quay.io/r:4.21"}, observedGeneration: 1}}`,
			want:   func(c *model.ControlPlane) { c.ReleaseVersion = "4.21.0" },
		},
		"the version of the release before": {
			status: `{versionStatus: {desired: {version: 4.20.0, image: "quay.io/r:4.20"}, observedGeneration: 1}}`,
			want:   func(*model.ControlPlane) {},
		},
	})
}

// TestReadControlPlane checks the remaining fields.
func TestReadControlPlane(t *testing.T) {
	const serving = `services: [
		{service: APIServer, servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.example.com}}},
		{service: Ignition, servicePublishingStrategy: {type: NodePort, nodePort: {address: 192.0.2.7, port: 30443}}},
		{service: OAuthServer, servicePublishingStrategy: {type: Route, route: {hostname: oauth.example.com}}},
		{service: Konnectivity, servicePublishingStrategy: {type: Pigeon}}]`
	checkReadControlPlane(t, map[string]controlPlaneCase{
		"configuration": {
			spec: `configuration: {apiServer: {tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Custom, custom: {
				ciphers: [ECDHE-RSA-AES128-GCM-SHA256], minTLSVersion: VersionTLS12, groups: [X25519]}}}}`,
			want: func(c *model.ControlPlane) {
				c.TLSProfile = model.TLSProfile{
					Type: "Custom", Ciphers: []string{"ECDHE-RSA-AES128-GCM-SHA256"}, Groups: []string{"X25519"},
					MinVersion: "VersionTLS12", Adherence: "StrictAllComponents",
				}
			},
		},
		"a profile by name": {
			spec: `configuration: {apiServer: {tlsSecurityProfile: {type: Modern, modern: {}}}}`,
			want: func(c *model.ControlPlane) { c.TLSProfile.Type = "Modern" },
		},
		"capabilities": {
			spec: `capabilities: {enabled: [baremetal], disabled: [Console, Ingress]}`,
			want: func(c *model.ControlPlane) { c.DisabledCapabilities = []string{"Console", "Ingress"} },
		},
		"services": {
			spec: serving,
			want: func(c *model.ControlPlane) {
				c.Services = []model.PublishedService{
					{Service: "APIServer", Strategy: "LoadBalancer", Host: "api.example.com"},
					{Service: "Ignition", Strategy: "NodePort", Host: "192.0.2.7", Port: 30443},
					{Service: "OAuthServer", Strategy: "Route", Host: "oauth.example.com"},
					{Service: "Konnectivity", Strategy: "Pigeon"},
				}
			},
		},
		"paused":        {spec: `pausedUntil: "true"`, want: func(c *model.ControlPlane) { c.PausedUntil = "true" }},
		"being deleted": {metadata: `deletionTimestamp: 2026-11-21T10:00:00Z`, want: func(c *model.ControlPlane) { c.Deleting = true }},
		"who may reach the API server": {
			spec: `{platform: {type: None}, networking: {apiServer: {allowedCIDRBlocks: [198.51.100.7/24, "2001:db8::/32", everybody]}}}`,
			want: func(c *model.ControlPlane) {
				c.Platform, c.AllowedCIDRs = "None", []string{"198.51.100.0/24", "2001:db8::/32"}
				c.UnreadFields = []string{`spec.networking.apiServer.allowedCIDRBlocks: "everybody" is not a CIDR block`}
			},
		},
		"unreadable address blocks": {
			spec: `{platform: {type: None}, networking: 7}`,
			want: func(c *model.ControlPlane) {
				c.Platform, c.AllowedCIDRs = "None", []string{"192.0.2.0/32"}
				c.UnreadFields = []string{
					"spec.networking.apiServer.allowedCIDRBlocks is not a list of CIDR blocks: " +
						"no address outside of the cluster can reach istiod",
				}
			},
		},
		"fields of a newer HyperShift": {
			spec: `{monitoring: {mode: All}, autoNode: [new], fips: {enabled: true}, platform: {type: Moon, aws: 5, moon: {crater: 7}}}`,
			want: func(c *model.ControlPlane) { c.Platform = "Moon" },
		},
	})
}

func checkReadControlPlane(t *testing.T, cases map[string]controlPlaneCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := plain()
			tc.want(&want)
			got, err := readControlPlane(hcp(t, tc.metadata, tc.spec, tc.status), "istiod-openshift-gateway")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEachPlatformIsRead checks reading of each platform's fields.
func TestEachPlatformIsRead(t *testing.T) {
	for platform, more := range map[hypershiftv1beta1.PlatformType]string{
		hypershiftv1beta1.AWSPlatform:       `aws: {region: us-east-1, endpointAccess: Private}`,
		hypershiftv1beta1.AzurePlatform:     `azure: {location: eastus, topology: Private}`,
		hypershiftv1beta1.GCPPlatform:       `gcp: {project: p, region: us-central1, endpointAccess: Private}`,
		hypershiftv1beta1.AgentPlatform:     `agent: {agentNamespace: agents}`,
		hypershiftv1beta1.KubevirtPlatform:  `kubevirt: {generateID: x, baseDomainPassthrough: true}`,
		hypershiftv1beta1.NonePlatform:      `agent: null`,
		hypershiftv1beta1.IBMCloudPlatform:  `ibmcloud: {providerType: VPC}`,
		hypershiftv1beta1.PowerVSPlatform:   `powervs: {region: r, zone: z}`,
		hypershiftv1beta1.OpenStackPlatform: `openstack: {identityRef: {name: ref, cloudName: cloud}}`,
	} {
		t.Run(string(platform), func(t *testing.T) {
			want := plain()
			want.Platform = string(platform)
			want.VirtualMachinesInNamespace = platform == hypershiftv1beta1.KubevirtPlatform
			if strings.Contains(more, "Private") {
				want.EndpointAccess = "Private"
			}
			got, err := readControlPlane(hcp(t, "", `platform: {type: `+string(platform)+`, `+more+`}`, ""), "istiod")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEndpointAccessOfNodes checks endpoint access and shared ingress. On Azure, the fields for them have changed more
// than once.
func TestEndpointAccessOfNodes(t *testing.T) {
	const swift = `annotations: {hypershift.openshift.io/swift-pod-network-instance: guest1}`
	azure := func(more string) string { return `platform: {type: Azure, azure: {location: eastus, ` + more + `}}` }
	const managed, workload = `azureAuthenticationConfig: {azureAuthenticationConfigType: ` +
		`ManagedIdentities}`, `azureAuthenticationConfig: {azureAuthenticationConfigType: WorkloadIdentities}`
	for name, tc := range map[string]struct {
		metadata, spec string
		access         string
		shared         bool
	}{
		"self-managed": {"", azure(workload), "", false},
		"self-managed, private link": {
			"", azure(workload + `, topology: PublicAndPrivate, private: {type: PrivateLink}`), "PublicAndPrivate",
			false,
		},
		"with an annotation that means nothing there": {swift, azure(workload), "", false},
		"ARO HCP":                           {"", azure(managed), "", true},
		"ARO HCP, Swift":                    {"", azure(managed + `, topology: Private, private: {type: Swift}`), "Private", true},
		"ARO HCP, Swift, before the field":  {swift, azure(managed), "PublicAndPrivate", true},
		"ARO HCP, the field overrides that": {swift, azure(managed + `, topology: Private`), "Private", true},
		"not on Azure":                      {"", `platform: {type: None, azure: {` + managed + `}}`, "", false},
		"GCP, nothing said":                 {"", `platform: {type: GCP, gcp: {project: p}}`, "Private", false},
		"nothing that can be read":          {"", `platform: {type: Azure, azure: {azureAuthenticationConfig: 5}}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readControlPlane(hcp(t, tc.metadata, tc.spec, ""), "istiod")
			if err != nil {
				t.Fatal(err)
			}
			if got.EndpointAccess != tc.access || got.SharedIngress != tc.shared {
				t.Errorf("access %q, shared ingress %v; want %q, %v", got.EndpointAccess, got.SharedIngress, tc.access, tc.shared)
			}
		})
	}
}

// TestAnUnreadableControlPlaneIsAnError checks that an unreadable object is an error. A guess could resume a paused
// control plane.
func TestAnUnreadableControlPlaneIsAnError(t *testing.T) {
	if got, err := readControlPlane(hcp(t, "", `pausedUntil: {until: tomorrow}`, ""), "istiod"); err == nil {
		t.Errorf("it was read as %+v", got)
	}
}

func TestDefaultUser(t *testing.T) {
	for text, want := range map[string]int64{"1001": 1001, "0": 0, "-5": 0, "root": 0, "": 0} {
		uid, unread := defaultUser(map[string]string{defaultUserAnnotation: text})
		if uid != want || (len(unread) == 0) != (want != 0) {
			t.Errorf("%q: user %d, unread %q, want user %d", text, uid, unread, want)
		}
	}
	if uid, unread := defaultUser(nil); uid != 0 || unread != nil {
		t.Errorf("of no annotation it reads user %d, %q", uid, unread)
	}
}

// TestTypesMatchHyperShift compares hypergate's types with HyperShift's API. Each field that hypergate reads
// must exist there with the same form, and each name must be the same.
func TestTypesMatchHyperShift(t *testing.T) {
	sameForm(t, "", reflect.TypeFor[hostedControlPlane](), reflect.TypeFor[hypershiftv1beta1.HostedControlPlane](), map[string]bool{
		"status.controlPlaneVersion": true, // only in newer versions
	})
	for ours, theirs := range map[string]string{
		priorityClassAnnotation:        hypershiftv1beta1.ControlPlanePriorityClass,
		restartDateAnnotation:          hypershiftv1beta1.RestartDateAnnotation,
		topologyAnnotation:             hypershiftv1beta1.TopologyAnnotation,
		dedicatedRequestServing:        hypershiftv1beta1.DedicatedRequestServingComponentsTopology,
		servingNodesAnnotation:         hypershiftv1beta1.RequestServingNodeAdditionalSelectorAnnotation,
		requestOverrideAnnotation:      hypershiftv1beta1.ResourceRequestOverrideAnnotationPrefix,
		azurePlatform:                  string(hypershiftv1beta1.AzurePlatform),
		gcpPlatform:                    string(hypershiftv1beta1.GCPPlatform),
		kubeVirtPlatform:               string(hypershiftv1beta1.KubevirtPlatform),
		managedIdentities:              string(hypershiftv1beta1.AzureAuthenticationTypeManagedIdentities),
		model.SingleReplica:            string(hypershiftv1beta1.SingleReplica),
		model.HighlyAvailable:          string(hypershiftv1beta1.HighlyAvailable),
		model.IngressCapability:        string(hypershiftv1beta1.IngressCapability),
		hostedControlPlanes().String(): hypershiftv1beta1.GroupVersion.WithResource("hostedcontrolplanes").String(),
	} {
		if ours != theirs {
			t.Errorf("%q is %q in HyperShift's API", ours, theirs)
		}
	}
}

// sameForm checks that each field of ours exists in theirs with the same form.
func sameForm(t *testing.T, path string, ours, theirs reflect.Type, newer map[string]bool) {
	t.Helper()
	if theirs.Kind() == reflect.Pointer && ours.Kind() != reflect.Pointer {
		theirs = theirs.Elem()
	}
	if ours.Kind() != theirs.Kind() {
		t.Errorf("%s is a %s, and in HyperShift's API a %s", path, ours.Kind(), theirs.Kind())
		return
	}
	switch ours.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		sameForm(t, path, ours.Elem(), theirs.Elem(), newer)
	case reflect.Struct:
		if ours == theirs {
			return
		}
		for field := range ours.Fields() {
			name := field.Tag.Get("json")
			below := strings.TrimPrefix(path+"."+name, ".")
			if newer[below] {
				continue
			}
			if other, found := jsonField(theirs, name); !found {
				t.Errorf("there is no %s in HyperShift's API", below)
			} else {
				sameForm(t, below, field.Type, other, newer)
			}
		}
	default:
	}
}

// jsonField returns the type of the field with the given JSON name.
func jsonField(in reflect.Type, name string) (reflect.Type, bool) {
	for field := range in.Fields() {
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return field.Type, true
		}
		if tag == "" && options == "inline" || field.Anonymous && tag == "" {
			if found, has := jsonField(field.Type, name); has {
				return found, true
			}
		}
	}
	return nil, false
}
