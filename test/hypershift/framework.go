package hypershift

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Component is a component of HyperShift's control plane operator: its assets, and the options that its Go code
// passes to the framework. Render does what that framework does (support/controlplane-component, as of August 2026).
// It covers what a single Deployment needs that does not serve requests.
type Component struct {
	Name string
	// Assets are the folders with the manifests. The manifest of the Deployment is deployment.yaml.
	Assets []string
	// ManagementAccess is the result of NeedsManagementKASAccess.
	ManagementAccess bool
	// KubeconfigMount is the path at which InjectServiceAccountKubeConfig mounts the guest's kubeconfig.
	KubeconfigMount string
	// Images are the images of the release, by their keys in the manifests.
	Images map[string]string
	// Adapt holds the component's own adapt functions, by manifest.
	Adapt map[string]func(*unstructured.Unstructured) error
	// Skip reports whether a manifest is left out, because its predicate is false. Nil means that none is.
	Skip func(file string) bool
}

// Values of every hosted control plane that the framework uses.
const (
	planeName    = "guest1"
	planeUID     = "7f3a0000-0000-4000-8000-000000000000"
	releaseImage = "quay.io/r:4.21"
	deployment   = "deployment.yaml"
)

// Render returns the objects that the framework applies for a hosted control plane, in its order: manifests by name,
// the kubeconfig, the Deployment.
func (c Component) Render(plane ControlPlane) ([]*unstructured.Unstructured, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		if file == deployment || c.Skip != nil && c.Skip(file) {
			continue
		}
		u, err := c.Manifest(file, plane)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	workload, err := c.Manifest(deployment, plane)
	if err != nil {
		return nil, err
	}
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(workload.Object, d, true); err != nil {
		return nil, fmt.Errorf("reading %s of component %s: %w", deployment, c.Name, err)
	}
	c.stamp(d, plane)
	if workload.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(d); err != nil {
		return nil, fmt.Errorf("writing %s of component %s: %w", deployment, c.Name, err)
	}
	unstructured.RemoveNestedField(workload.Object, "status")
	return append(out, c.kubeconfig(plane), workload), nil
}

// files returns the names of the manifests in the order of the framework: by name.
func (c Component) files() ([]string, error) {
	var out []string
	for _, folder := range c.Assets {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, fmt.Errorf("rendering component %s: %w", c.Name, err)
		}
		for _, entry := range entries {
			out = append(out, entry.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// read returns the content of a manifest, of the first folder that has it.
func (c Component) read(file string) (data []byte, err error) {
	err = fs.ErrNotExist
	for _, folder := range c.Assets {
		if data, err = os.ReadFile(filepath.Join(folder, file)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rendering component %s: %s: %w", c.Name, file, err)
	}
	return data, nil
}

// Manifest returns the object in a file, with the control plane's namespace and owner reference. It fails if there
// are several objects, because the framework reads only one.
func (c Component) Manifest(file string, plane ControlPlane) (*unstructured.Unstructured, error) {
	data, err := c.read(file)
	if err != nil {
		return nil, err
	}
	u, second := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
	if err := decoder.Decode(u); err != nil {
		return nil, fmt.Errorf("reading %s of component %s: %w", file, c.Name, err)
	}
	if err := decoder.Decode(second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading %s of component %s: the framework reads one object per file, and there are more", file, c.Name)
	}
	u.SetNamespace(plane.Namespace)
	own(u)
	switch u.GetKind() {
	case "RoleBinding":
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		for _, s := range subjects {
			if subject, is := s.(map[string]any); is && subject["kind"] == "ServiceAccount" {
				subject["namespace"] = plane.Namespace
			}
		}
		u.Object["subjects"] = subjects
	case "ServiceAccount":
		u.Object["imagePullSecrets"] = []any{map[string]any{"name": "pull-secret"}}
	}
	if adapt := c.Adapt[file]; adapt != nil {
		if err := adapt(u); err != nil {
			return nil, fmt.Errorf("adapting %s of component %s: %w", file, c.Name, err)
		}
	}
	return u, nil
}

// own sets the control plane as owner of an object.
func own(u *unstructured.Unstructured) {
	u.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{ //nolint:forcetypeassert // SetNamespace created it
		"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedControlPlane", "name": planeName, "uid": planeUID,
		"controller": true, "blockOwnerDeletion": true,
	}}
}

// KubeconfigSecret returns the name of the Secret in which the framework stores a client certificate for the guest.
func (c Component) KubeconfigSecret() string { return c.Name + "-service-account-kubeconfig" }

func (c Component) kubeconfig(plane ControlPlane) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeOpaque),
		"data": map[string]any{"kubeconfig": "", "ca.crt": "", "tls.crt": "", "tls.key": ""}, // tests do not read the content
	}}
	u.SetName(c.KubeconfigSecret())
	u.SetNamespace(plane.Namespace)
	return u
}

// stamp makes the changes that the framework makes to a Deployment.
func (c Component) stamp(d *appsv1.Deployment, plane ControlPlane) {
	setDefault(&d.Labels)[managedBy] = operator
	replicas := int32(1)
	if plane.HighlyAvailable {
		replicas = 2
	}
	if d.Spec.Replicas == nil {
		d.Spec.Replicas = &replicas
	}
	d.Spec.RevisionHistoryLimit = new(int32(2))

	pod := &d.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "service-account-kubeconfig", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: c.KubeconfigSecret(), DefaultMode: new(int32(0o640))},
	}})
	for i := range pod.Containers {
		pod.Containers[i].VolumeMounts = append(pod.Containers[i].VolumeMounts,
			corev1.VolumeMount{Name: "service-account-kubeconfig", MountPath: c.KubeconfigMount})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: tmp, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	for i := range pod.Containers {
		c.stampContainer(&pod.Containers[i])
	}
	pod.AutomountServiceAccountToken = new(c.ManagementAccess)
	if plane.User != 0 {
		pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(plane.User)} // replaces the old value
	}
	pod.PriorityClassName = "hypershift-control-plane"
	if plane.PriorityClass != "" {
		pod.PriorityClassName = plane.PriorityClass
	}
	if plane.NodeSelector != nil {
		pod.NodeSelector = plane.NodeSelector
	}
	c.stampMeta(&d.Spec.Template, plane)
	place(pod, plane)
}

func (c Component) stampContainer(container *corev1.Container) {
	if image, known := c.Images[container.Image]; known {
		container.Image = image
	}
	container.ImagePullPolicy = corev1.PullIfNotPresent
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	container.SecurityContext.ReadOnlyRootFilesystem = new(true)
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/tmp" }) {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: tmp, MountPath: "/tmp"})
	}
}

// stampMeta sets a pod's labels and annotations.
func (c Component) stampMeta(pod *corev1.PodTemplateSpec, plane ControlPlane) {
	labels, annotations := setDefault(&pod.Labels), setDefault(&pod.Annotations)
	labels[domain+"control-plane-component"] = c.Name
	labels[planeOfPod] = plane.Namespace
	if c.ManagementAccess {
		labels[mgmtAccess] = "true"
	}
	maps.Copy(labels, plane.Labels)
	annotations[domain+"release-image"] = releaseImage
	var local []string
	hash := fnv.New32a() // a hash of the mounted volumes, because a new kubeconfig needs a new pod
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.EmptyDir != nil, v.HostPath != nil:
			local = append(local, v.Name)
		case v.Secret != nil:
			fmt.Fprint(hash, v.Secret.SecretName)
		case v.ConfigMap != nil:
			fmt.Fprint(hash, v.ConfigMap.Name)
		}
	}
	annotations[safeToEvict] = strings.Join(local, ",")
	annotations["component."+domain+"config-hash"] = fmt.Sprintf("%x", hash.Sum32())
}

// place sets the scheduling of pods. This component serves no requests, so it does not use the nodes for request
// serving.
func place(pod *corev1.PodSpec, plane ControlPlane) {
	pod.Tolerations = append([]corev1.Toleration{toleration(domain+"control-plane", "true"), toleration(domain+"cluster", plane.Namespace)},
		plane.Tolerations...)
	pod.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferredNodes(plane)},
		PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{together(plane)},
		},
	}
}

// setDefault creates the map if it is nil, and returns it.
func setDefault(m *map[string]string) map[string]string {
	if *m == nil {
		*m = map[string]string{}
	}
	return *m
}
