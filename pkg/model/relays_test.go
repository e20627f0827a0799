package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hypergate/hypergate/cmd/hypergate-tunnel/app"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/tunnel"
	"github.com/hypergate/hypergate/test/fromyaml"
	"github.com/hypergate/hypergate/test/modeltest"
	"github.com/hypergate/hypergate/test/mustfail"
)

func tunnelConfig() model.Config {
	cfg := config()
	cfg.Publish = model.Publish{
		Strategy: model.PublishTunnel, RelayImage: "guest.example.com/hypergate:1", SidecarImage: "mgmt.example.com/hypergate:1",
	}
	return cfg
}

func relays(t *testing.T) (model.GuestObject, appsv1.StatefulSet) {
	t.Helper()
	o, err := model.NewRelays(tunnelConfig())
	if err != nil {
		t.Fatal(err)
	}
	u, err := o.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	var out appsv1.StatefulSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &out, true); err != nil {
		t.Fatal(err)
	}
	return o, out
}

// TestTheRelaysAreTheOnlyWorkload checks that nothing else can become a workload of the guest, not even an object that
// is equal to the relays.
func TestTheRelaysAreTheOnlyWorkload(t *testing.T) {
	o, _ := relays(t)
	u, err := o.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.NewGuestObject(u, tunnelConfig()); err == nil {
		t.Error("a copy of the relays is a GuestObject")
	}
	for _, kind := range []string{
		"v1 Pod", "v1 ReplicationController", "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "apps/v1 ReplicaSet",
		"batch/v1 Job", "batch/v1 CronJob", "v1 Secret",
	} {
		apiVersion, name, _ := strings.Cut(kind, " ")
		for _, named := range []string{"a", model.RelayName, model.TunnelAccountName} {
			metadata := "metadata: {name: " + named + ", namespace: openshift-ingress}"
			object := fromyaml.Object(t, "{apiVersion: "+apiVersion+", kind: "+name+", "+metadata+"}")
			_, err := model.NewGuestObject(object, tunnelConfig())
			mustfail.With(t, err, name+" openshift-ingress/"+named, "is not allowed on the guest side")
		}
	}
	var workloads []string
	for _, k := range model.GuestKinds() {
		if k.Workload {
			workloads = append(workloads, k.GVK.Kind+" "+strings.Join(k.Names, ","))
		}
	}
	if diff := cmp.Diff([]string{"StatefulSet " + model.RelayName}, workloads); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRelaysHaveNoPower checks that a relay pod mounts no token and no Secret, and fits into a restricted namespace.
func TestRelaysHaveNoPower(t *testing.T) {
	_, set := relays(t)
	pod := set.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostNetwork || len(pod.InitContainers) > 0 {
		t.Errorf("it mounts a token, is on the host network, or has more containers: %+v", pod)
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap == nil || v.ConfigMap.Name != config().TrustBundleName() {
			t.Errorf("volume %s is not the roots of the mesh CA: %+v", v.Name, v.VolumeSource)
		}
	}
	if len(pod.Containers) != 1 || len(pod.Volumes) != 1 {
		t.Fatalf("%d containers, %d volumes, want 1 and 1", len(pod.Containers), len(pod.Volumes))
	}
	if pod.SecurityContext != nil {
		t.Errorf("the pod has a security context of its own, for example a user that OpenShift refuses: %+v", pod.SecurityContext)
	}
	checkRestricted(t, pod.Containers[0])
	if got := pod.Containers[0].Image; got != "guest.example.com/hypergate:1" {
		t.Errorf("the image is %s", got)
	}
}

// TestRelaysAreApart checks that the scheduler puts the relays on different nodes also if the nodes have no zones. Then
// it ignores all constraints for a topology spread of a pod with one for zones.
func TestRelaysAreApart(t *testing.T) {
	_, set := relays(t)
	pod := set.Spec.Template.Spec
	if len(pod.TopologySpreadConstraints) > 0 {
		t.Errorf("constraints that nodes without zones do not meet: %+v", pod.TopologySpreadConstraints)
	}
	apart := map[string]map[string]string{}
	for _, term := range pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		apart[term.PodAffinityTerm.TopologyKey] = term.PodAffinityTerm.LabelSelector.MatchLabels
	}
	app := map[string]string{"app": set.Spec.Template.Labels["app"]}
	want := map[string]map[string]string{"kubernetes.io/hostname": app, "topology.kubernetes.io/zone": app}
	if diff := cmp.Diff(want, apart); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestARelayLeavesInTime checks that a relay that is asked to end still serves, so that no gateway connects to an
// address that is gone. Then it has time to end.
func TestARelayLeavesInTime(t *testing.T) {
	_, set := relays(t)
	pod := set.Spec.Template.Spec
	sleep := pod.Containers[0].Lifecycle.PreStop.Sleep
	if sleep == nil || sleep.Seconds < 5 || 2*sleep.Seconds > *pod.TerminationGracePeriodSeconds {
		t.Errorf("it serves for %+v, of %d s until it is killed", sleep, *pod.TerminationGracePeriodSeconds)
	}
}

func checkRestricted(t *testing.T, c corev1.Container) {
	t.Helper()
	own := c.SecurityContext
	if own == nil || own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation || own.ReadOnlyRootFilesystem == nil ||
		!*own.ReadOnlyRootFilesystem || own.RunAsNonRoot == nil || !*own.RunAsNonRoot || own.Privileged != nil ||
		own.RunAsUser != nil || own.SeccompProfile == nil || own.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("container %s is not restricted: %+v", c.Name, own)
	}
	if _, limited := c.Resources.Limits[corev1.ResourceMemory]; !limited || len(c.Resources.Requests) != 2 {
		t.Errorf("container %s: %+v", c.Name, c.Resources)
	}
}

// TestBothEndsAgree checks that what is planned has the names, ports, flags and files that both ends of the tunnel
// expect.
func TestBothEndsAgree(t *testing.T) {
	_, set := relays(t)
	var pods []string
	for i := range *set.Spec.Replicas {
		pods = append(pods, tunnel.ProxyResource(fmt.Sprintf("%s-%d", set.Name, i)))
	}
	if diff := cmp.Diff(pods, model.RelayProxyResources()); diff != "" {
		t.Errorf("the permission is not for the relay pods: -pods +permission:\n%s", diff)
	}
	for want, got := range map[string]string{
		tunnel.ServerFile: model.ServerFile, tunnel.CAFile: model.GuestCAFile, tunnel.TokenFile: model.TokenFile,
	} {
		if want != got {
			t.Errorf("the sidecar reads %s, and the file is %s", want, got)
		}
	}
	var sidecar corev1.Container
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tunnelConfig().SidecarContainer(), &sidecar, true)
	if err != nil {
		t.Fatal(err)
	}
	checkRestricted(t, sidecar)
	for _, c := range []corev1.Container{set.Spec.Template.Spec.Containers[0], sidecar} {
		var out strings.Builder
		// -h ends the parsing of flags with success. A flag that does not exist ends it before.
		if code := app.Execute(context.Background(), append(slices.Clone(c.Args), "-h"), &out, &out); code != 0 {
			t.Errorf("%s does not know these arguments: %q\n%s", c.Command, c.Args, out.String())
		}
		for _, port := range c.Ports {
			if !strings.Contains(out.String(), `":`+string(mustJSON(t, port.ContainerPort))+`"`) {
				t.Errorf("container %s does not listen on port %d by default:\n%s", c.Name, port.ContainerPort, out.String())
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheTunnelRoundTripsThroughItsSecret checks that the Secret of the sidecar has all of its files, and can be read
// again.
func TestTheTunnelRoundTripsThroughItsSecret(t *testing.T) {
	serving := pki.Serving{Cert: []byte("a certificate"), Key: []byte("a key")}
	o, err := model.TunnelSecret(tunnelConfig(), model.ControlPlane{}, modeltest.Credential(), serving)
	if err != nil {
		t.Fatal(err)
	}
	secret := secretOf(t, o)
	files := map[string]string{}
	for name, content := range secret.Data {
		files[name] = string(content)
	}
	want := map[string]string{
		"server": "https://kube-apiserver:6443", "ca.crt": "a bundle", "token": "a token", "tls.crt": "a certificate", "tls.key": "a key",
	}
	if diff := cmp.Diff(want, files); diff != "" || secret.Name != model.TunnelSecretName {
		t.Errorf("Secret %s, -want +got:\n%s", secret.Name, diff)
	}
	got, pair, err := model.TunnelFromSecret(secret.Annotations, secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{modeltest.Credential(), serving}, []any{got, pair}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	delete(secret.Data, "token")
	got, pair, err = model.TunnelFromSecret(secret.Annotations, secret.Data)
	mustfail.With(t, err, model.TunnelSecretName)
	if diff := cmp.Diff([]any{model.Credential{}, serving}, []any{got, pair}); diff != "" {
		t.Errorf("without a token there is a credential, or no key pair: -want +got:\n%s", diff)
	}
	for name, incomplete := range map[string]pki.Serving{"key": {Cert: serving.Cert}, "certificate": {Key: serving.Key}} {
		_, err := model.TunnelSecret(tunnelConfig(), model.ControlPlane{}, modeltest.Credential(), incomplete)
		mustfail.With(t, err, name)
	}
}

// TestBearers checks that each bearer has a Secret of its own.
func TestBearers(t *testing.T) {
	for bearer := range model.Bearer(model.Bearers) {
		if of, is := model.BearerOf(bearer.SecretName()); !is || of != bearer {
			t.Errorf("Secret %s is of %s, want %s", bearer.SecretName(), of, bearer)
		}
	}
	if of, is := model.BearerOf(model.CASecretName); is {
		t.Errorf("the Secret of the mesh CA has a token of %s", of)
	}
}
