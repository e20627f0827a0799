package plane

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// AuditPolicy logs one line for every request when its response is complete. A long request, such as a watch, has
// another line when its response starts. It logs metadata: tests check which user did what to which object, and bodies
// would write Secrets into a file. Only writes to the kinds of Gateway API have bodies, because they have several
// writers with fields of their own.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: gateway.networking.k8s.io}]
- level: Metadata
`

// AuditPolicyFile is the file name of AuditPolicy in the folder of a PKI.
const AuditPolicyFile = "audit-policy.yaml"

// APIServerFlags returns the kube-apiserver flags that all planes share. pkiDir is the folder in which the server
// finds the files of its PKI and the audit policy. auditLog is the file to write. The caller adds the flags that
// differ (addresses, etcd, service range).
func APIServerFlags(name, pkiDir, auditLog string) []string {
	file := func(name string) string { return filepath.Join(pkiDir, name) }
	return []string{
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc." + name,
		"--service-account-key-file=" + file("sa.key"),
		"--service-account-signing-key-file=" + file("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--profiling=false",
		"--audit-policy-file=" + file(AuditPolicyFile),
		"--audit-log-path=" + auditLog,
		"--audit-log-maxsize=1024", // in MB; the default of 100 would rotate the file while a long test reads it
	}
}

// EtcdFlags returns the flags of a single-member etcd. It uses --unsafe-no-fsync, because the data need not survive a
// power failure and syncing takes most of etcd's time.
func EtcdFlags(name, dataDir, listenURL, advertiseURL, peerURL string) []string {
	return []string{
		"--name=" + name,
		"--data-dir=" + dataDir,
		"--listen-client-urls=" + listenURL,
		"--advertise-client-urls=" + advertiseURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=" + name + "=" + peerURL,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

// ControllerManagerFlags returns the flags of every kube-controller-manager in these tests. There is one replica, so
// leader election is off.
func ControllerManagerFlags(pkiDir string) []string {
	file := func(name string) string { return filepath.Join(pkiDir, name) }
	return []string{
		"--kubeconfig=" + file("kcm.kubeconfig"),
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + file("sa.key"),
		"--root-ca-file=" + file("ca.crt"),
		"--cluster-signing-cert-file=" + file("ca.crt"),
		"--cluster-signing-key-file=" + file("ca.key"),
	}
}

// WaitReady returns nil when the API server answers /readyz with ok. When ctx ends, it returns the last failure.
func WaitReady(ctx context.Context, config *rest.Config) error {
	return poll(ctx, config, "ready", func(err error) bool { return err == nil })
}

// WaitDown returns when the API server's address no longer answers.
func WaitDown(ctx context.Context, config *rest.Config) error {
	return poll(ctx, config, "down", func(err error) bool { return err != nil })
}

func poll(ctx context.Context, config *rest.Config, state string, reached func(error) bool) error {
	config = rest.CopyConfig(config)
	config.Timeout = 2 * time.Second
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	defer client.CloseIdleConnections()
	var last error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = readyz(ctx, client, config.Host)
		return reached(last), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be %s (last answer: %w): %w", config.Host, state, last, context.Cause(ctx))
	}
	return nil
}

func readyz(ctx context.Context, client *http.Client, host string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", response.Status)
	}
	return nil
}
