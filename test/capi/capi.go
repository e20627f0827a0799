// Package capi has the parts of Cluster API that hypergate's tests need: the kind Cluster, and the Secrets of the
// contract. Cluster API's controllers do not run. The tests do their work.
package capi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Names of Cluster API.
const (
	Group            = "cluster.x-k8s.io"
	V1Beta1          = "v1beta1"
	V1Beta2          = "v1beta2"
	ClusterNameLabel = Group + "/cluster-name"
	PausedAnnotation = Group + "/paused"
)

// Initialized returns a merge patch of a Cluster's status which reports that the control plane is up. The field
// depends on the API's version.
func Initialized(version string) string {
	if version == V1Beta1 {
		return `{"status":{"controlPlaneReady":true}}`
	}
	return `{"status":{"initialization":{"controlPlaneInitialized":true}}}`
}

// Clusters returns a client for the Clusters of a namespace, in one version of the API.
func Clusters(config *rest.Config, version, namespace string) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client.Resource(schema.GroupVersionResource{Group: Group, Version: version, Resource: "clusters"}).Namespace(namespace), nil
}

// Serve creates the CRD of Clusters with one version of the API. It returns when the API server serves the kind. The
// returned function deletes the CRD.
func Serve(ctx context.Context, config *rest.Config, version string) (remove func(context.Context) error, err error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	crds := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions",
	})
	crd := definition(version)
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("making the CRD of Clusters: %w", err)
	}
	clusters, err := Clusters(config, version, metav1.NamespaceDefault)
	if err != nil {
		return nil, err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = clusters.List(ctx, metav1.ListOptions{})
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for Clusters to be served: %w; last: %w", err, last)
	}
	return func(ctx context.Context) error { return crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{}) }, nil
}

// definition returns a CRD that accepts any Cluster and has a status subresource, as in Cluster API.
func definition(version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "clusters." + Group},
		"spec": map[string]any{
			"group": Group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Cluster", "listKind": "ClusterList", "plural": "clusters", "singular": "cluster"},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
				"subresources": map[string]any{"status": map[string]any{}},
			}},
		},
	}}
}

// Cluster returns a new Cluster, of which no part is up. It has Cluster API's finalizer.
func Cluster(version, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{
		Object: map[string]any{"spec": map[string]any{
			"controlPlaneEndpoint": map[string]any{"host": "guest.example.com", "port": int64(6443)},
		}},
	}
	u.SetAPIVersion(Group + "/" + version)
	u.SetKind("Cluster")
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetFinalizers([]string{"cluster.cluster.x-k8s.io"})
	return u
}

// KubeconfigSecret returns the Secret of Cluster API's contract. It contains a kubeconfig for the Cluster's API
// server, with a client certificate or a token.
func KubeconfigSecret(namespace, cluster string, config *rest.Config) (*corev1.Secret, error) {
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"user": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"context": {Cluster: cluster, AuthInfo: "user"}},
		CurrentContext: "context",
	})
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: cluster + "-kubeconfig",
			Labels: map[string]string{ClusterNameLabel: cluster},
		},
		Type: Group + "/secret",
		Data: map[string][]byte{"value": data},
	}, nil
}
