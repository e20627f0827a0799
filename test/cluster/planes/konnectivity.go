package planes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/freeport"
)

// Names of konnectivity's processes.
const (
	konnectivityServer = "proxy-server"
	konnectivityAgent  = "proxy-agent"
)

// egressSelector sends the API server's connections to nodes, pods and Services through konnectivity, over TCP with
// certificates of both sides, as HyperShift does.
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
        url: https://127.0.0.1:%[1]d
        tlsConfig: {caBundle: %[2]s/ca.crt, clientCert: %[2]s/client.crt, clientKey: %[2]s/client.key}
`

// UseKonnectivity starts konnectivity's server and agent, and starts the API server again so that it reaches pods only
// through them. The agent connects to pods from the network of this process. Call it once.
func (p *Plane) UseKonnectivity(ctx context.Context) error {
	found, err := servers.Find(ctx, konnectivityServer, konnectivityAgent)
	if err != nil {
		return fmt.Errorf("%w (konnectivity: hack/servers/build.sh %s %s)", err, konnectivityServer, konnectivityAgent)
	}
	maps.Copy(p.binaries, found)
	ports, err := freeport.Ports(ctx, 6)
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "konnectivity")
	keys, err := plane.NewCA("konnectivity")
	if err != nil {
		return err
	}
	if err := errors.Join(
		keys.AddServing("server", "konnectivity-server", "127.0.0.1"),
		keys.AddClient("client", "konnectivity-client", "kubernetes"),
		keys.AddClient("agent", "konnectivity-agent", "kubernetes"),
	); err != nil {
		return err
	}
	keys.Files["egress-selector.yaml"] = fmt.Appendf(nil, egressSelector, ports[0], dir)
	if err := keys.Write(dir); err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	p.args[konnectivityServer] = []string{
		"--mode=http-connect", "--proxy-strategies=destHost,defaultRoute", "--server-count=1",
		fmt.Sprintf("--server-port=%d", ports[0]), fmt.Sprintf("--agent-port=%d", ports[1]),
		fmt.Sprintf("--admin-port=%d", ports[2]), fmt.Sprintf("--health-port=%d", ports[3]),
		"--server-cert=" + file("server.crt"), "--server-key=" + file("server.key"), "--server-ca-cert=" + file("ca.crt"),
		"--cluster-cert=" + file("server.crt"), "--cluster-key=" + file("server.key"), "--cluster-ca-cert=" + file("ca.crt"),
	}
	p.args[konnectivityAgent] = []string{
		"--proxy-server-host=127.0.0.1", fmt.Sprintf("--proxy-server-port=%d", ports[1]), "--agent-identifiers=default-route=true",
		"--ca-cert=" + file("ca.crt"), "--agent-cert=" + file("agent.crt"), "--agent-key=" + file("agent.key"),
		fmt.Sprintf("--health-server-port=%d", ports[4]), fmt.Sprintf("--admin-server-port=%d", ports[5]), "--sync-interval=1s",
	}
	p.args[apiServer] = append(p.args[apiServer], "--egress-selector-config-file="+file("egress-selector.yaml"))
	p.StopAPI()
	if err := errors.Join(p.start(konnectivityServer), p.start(konnectivityAgent)); err != nil {
		return err
	}
	return p.StartAPI(ctx)
}

const apiServer = "kube-apiserver"

// PIDs returns the IDs of the plane's processes, by the name of the server.
func (p *Plane) PIDs() map[string]int {
	out := map[string]int{}
	for name, process := range p.running {
		out[name] = process.PID()
	}
	return out
}
