package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
)

// This file has the parts of konnectivity as HyperShift deploys them (openshift/hypershift control-plane-operator/:
// controllers/hostedcontrolplane/v2/assets/kube-apiserver, controllers/hostedcontrolplane/pki/konnectivity.go,
// hostedclusterconfigoperator/controllers/resources/konnectivity):
//
//   - a certificate authority of its own, with which all parts authenticate each other
//   - the server, a container in the pod of the guest's API server
//   - an agent on each node of the guest, in the network of the node. HyperShift has a DaemonSet. Here it is a process
//     like the kubelet, so that a test can stop it.
const (
	konnectivityServer = "proxy-server"
	// KonnectivityAgent is the name of the agent for GuestNode.Stop and GuestNode.Start.
	KonnectivityAgent = "proxy-agent"
	// konnectivityDir is the folder of the keys in the pod of the guest's API server.
	konnectivityDir    = "/konnectivity"
	egressSelectorFile = "egress-selector.yaml"
)

// egressSelector sends the API server's connections to nodes, pods and Services of the guest through konnectivity. A
// webhook with a URL is of type controlplane, and its connections are direct.
const egressSelector = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- {name: controlplane, connection: {proxyProtocol: Direct}}
- {name: etcd, connection: {proxyProtocol: Direct}}
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://konnectivity-server-local:8090
        tlsConfig:
          caBundle: ` + konnectivityDir + `/ca.crt
          clientCert: ` + konnectivityDir + `/client.crt
          clientKey: ` + konnectivityDir + `/client.key
`

// addKonnectivity adds the binaries of konnectivity, if the options need them.
func addKonnectivity(ctx context.Context, o Options, binaries servers.Binaries) error {
	if !o.Konnectivity {
		return nil
	}
	found, err := servers.Find(ctx, konnectivityServer, KonnectivityAgent)
	if err != nil {
		return fmt.Errorf("%w (konnectivity: hack/servers/build.sh %s %s)", err, konnectivityServer, KonnectivityAgent)
	}
	maps.Copy(binaries, found)
	return nil
}

// newKonnectivityKeys creates the keys of the server and of its client, the API server. The PKI also signs the keys of
// agents.
func (c *Cluster) newKonnectivityKeys() (*plane.PKI, error) {
	keys, err := plane.NewCA("konnectivity")
	if err != nil {
		return nil, err
	}
	local := "konnectivity-server-local"
	err = errors.Join(
		keys.AddServing("server", local, local, local+"."+c.HCPNamespace+".svc", "localhost", "127.0.0.1"),
		keys.AddServing("cluster", "konnectivity-server", c.run.Net.konnectivity().String()),
		keys.AddClient("client", "konnectivity-client", "kubernetes"),
	)
	delete(keys.Files, "ca.key") // the Secret is mounted by pods
	keys.Files[egressSelectorFile] = []byte(egressSelector)
	return keys, err
}

// konnectivityServerFlags returns the flags of the server. The API server connects to port 8090, agents to port 8091.
func konnectivityServerFlags() []string {
	file := func(name string) string { return konnectivityDir + "/" + name }
	return []string{
		"--mode=http-connect", "--proxy-strategies=destHost,defaultRoute", "--server-count=1",
		"--server-port=8090", "--server-cert=" + file("server.crt"), "--server-key=" + file("server.key"),
		"--server-ca-cert=" + file("ca.crt"),
		"--agent-port=8091", "--cluster-cert=" + file("cluster.crt"), "--cluster-key=" + file("cluster.key"),
		"--cluster-ca-cert=" + file("ca.crt"),
		"--health-port=2041", "--admin-port=8093", "--keepalive-time=30s", "--frontend-keepalive-time=30s",
	}
}

// writeAgentKeys writes the keys of the agent on a node of the guest.
func (c *Cluster) writeAgentKeys(r run) error {
	if !r.Konnectivity {
		return nil
	}
	keys := c.konnectivityKeys.Copy()
	ca := keys.Files["ca.crt"]
	clear(keys.Files)
	keys.Files["ca.crt"] = ca
	if err := keys.AddClient("agent", "konnectivity-agent", "kubernetes"); err != nil {
		return err
	}
	return keys.Write(r.agentDir())
}

func (r run) agentDir() string { return filepath.Join(r.Keys, "konnectivity") }

// agentFlags returns the flags of the agent on a node of the guest.
func (r run) agentFlags() []string {
	file := func(name string) string { return filepath.Join(r.agentDir(), name) }
	return []string{
		"--proxy-server-host=" + r.Net.konnectivity().String(), "--proxy-server-port=8091",
		"--ca-cert=" + file("ca.crt"), "--agent-cert=" + file("agent.crt"), "--agent-key=" + file("agent.key"),
		"--agent-identifiers=default-route=true", "--health-server-host=127.0.0.1", "--health-server-port=2041",
		"--keepalive-time=30s", "--probe-interval=5s", "--sync-interval=5s", "--sync-interval-cap=30s",
	}
}
