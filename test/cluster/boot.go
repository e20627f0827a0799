package cluster

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"text/template"

	"github.com/hypergate/hypergate/test/cluster/internal/plane"
	"github.com/hypergate/hypergate/test/cluster/servers"
	"github.com/hypergate/hypergate/test/proc"
)

// run is the data for the node's processes and the file templates. Down also uses it, as the record of a run.
type run struct {
	Name, Dir, Cgroup, NodeName, HCPNamespace string
	// Keys is the folder with the keys and kubeconfigs of the node's processes.
	Keys                               string
	Role                               nodeRole
	PauseImage, KubeImage, ExemptClass string
	Net                                network
	Binaries                           servers.Binaries
	Images                             []importable
	Guest, Detach                      bool
	MoreGuests                         []string
	// Hosts are the names that the DNS server of the node resolves besides those of the cluster, with their addresses.
	Hosts map[string]string
	// GuestNodes is the number of real nodes of the guest.
	GuestNodes int
	// Konnectivity is that of the Options.
	Konnectivity bool
}

const (
	runFile         = "run.json"
	podSecurityFile = "pod-security.yaml"
	// exemptClass is the RuntimeClass of the pod that need not be restricted.
	exemptClass = "not-restricted"
)

//go:embed files
var files embed.FS

// render fills in the embedded template with this name.
func render(name string, data any) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return nil, fmt.Errorf("parsing template %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("filling in %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// boot prepares the state folder and the network, and starts the node. The node waits for the word "go". Before it
// starts anything, it must be in its cgroups and needs its end of the link.
func (c *Cluster) boot(ctx context.Context) error {
	var err error
	if c.run.Net, err = reserveNetwork(ctx, c.Name); err != nil {
		return fmt.Errorf("making the node's network: %w", err)
	}
	if err := c.writeState(); err != nil {
		return fmt.Errorf("writing the state folder: %w", err)
	}
	c.node, err = c.run.launch(func(pid int) error { return moveIntoNode(ctx, c.Name, pid) })
	return err
}

// launch starts process 1 of a node. link gives its network namespace the node's end of a link.
func (r run) launch(link func(pid int) error) (*proc.Process, error) {
	stdin, goAhead, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = goAhead.Close() }()
	node, err := proc.Spec{
		Name: "node", LogDir: filepath.Join(r.Dir, "logs"), Detach: r.Detach, Stdin: stdin,
		// This is not the path of the executable, because `go run` and `go test` remove that file while the program
		// runs. The arguments only make the process recognisable in a process list.
		Argv:       []string{"/proc/self/exe", "node-of", r.Dir},
		Env:        []string{roleEnv + "=" + roleInit, dirEnv + "=" + r.Dir},
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}.Start()
	_ = stdin.Close()
	if err != nil {
		return nil, err
	}
	if err := joinCgroups(r.Cgroup, node.PID()); err != nil {
		return node, err
	}
	if err := link(node.PID()); err != nil {
		return node, err
	}
	if _, err := goAhead.WriteString(goWord); err != nil {
		return node, fmt.Errorf("starting the node: %w", err)
	}
	return node, nil
}

// writeState removes the content of an earlier run from the state folder and fills the folder.
func (c *Cluster) writeState() error {
	if err := c.makeFolders(); err != nil {
		return err
	}
	if err := c.run.write(); err != nil {
		return err
	}
	return c.writeMgmtPKI()
}

// write writes the record of the run and the configuration files of a node.
func (r run) write() error {
	record, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.Dir, runFile), record, 0o600); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml", "cni.conflist": "cni/10-hypergate.conflist", "Corefile": "Corefile",
		"kube-proxy.yaml": "kube-proxy.yaml", "kubelet.yaml": "kubelet.yaml", podSecurityFile: podSecurityFile,
	} {
		data, err := render(name, r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.Dir, "node", target), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) makeFolders() error {
	stale := []string{"pki", "node", "logs", "audit", guestsDir, guestNodesDir}
	if c.ownDir {
		stale = []string{""} // the name is predictable, so other users may have created the folder
	}
	for _, sub := range stale {
		if err := os.RemoveAll(filepath.Join(c.Dir, sub)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return makeFoldersIn(c.Dir, "node/cni", "logs/pods", "audit")
}

func makeFoldersIn(dir string, subs ...string) error {
	for _, sub := range subs {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeMgmtPKI creates the management cluster's keys. Every component has the identity that Kubernetes' default RBAC
// roles expect.
func (c *Cluster) writeMgmtPKI() error {
	n := c.run.Net
	pki, err := plane.NewPKI("mgmt", n.Node.String(), n.ServiceIP().String(), "localhost", "kubernetes", "kubernetes.default",
		"kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	server := "https://" + n.Node.String() + ":6443"
	if err := errors.Join(
		pki.AddKubeconfig("admin", server, "admin", "system:masters"),
		pki.AddKubeconfig("kcm", server, "system:kube-controller-manager", ""),
		pki.AddKubeconfig("scheduler", server, "system:kube-scheduler", ""),
		pki.AddKubeconfig("kube-proxy", server, "system:kube-proxy", ""),
		pki.AddKubeconfig("coredns", server, "coredns", "system:masters"),
		pki.AddKubeconfig("network-policies", server, "network-policies", "system:masters"),
		pki.AddKubeconfig("kubelet", server, "system:node:"+c.run.NodeName, "system:nodes"),
		pki.AddServing("kubelet-serving", c.run.NodeName, n.Node.String(), c.run.NodeName),
		pki.AddClient("kubelet-client", "apiserver-kubelet", "system:masters"),
	); err != nil {
		return err
	}
	pki.Files[plane.AuditPolicyFile] = []byte(plane.AuditPolicy)
	if err := pki.Write(c.run.Keys); err != nil {
		return err
	}
	c.Mgmt, err = plane.RESTConfig(c.MgmtKubeconfig)
	return err
}
