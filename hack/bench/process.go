package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/freeport"
)

// process is a running hypergate.
type process struct {
	cmd    *exec.Cmd
	log    string
	health string
	ended  chan struct{}
	err    error // valid once ended is closed
}

// buildController builds the binary in the same way as the release, unless one is given, and unpacks it.
func buildController(ctx context.Context, given, dir string) (string, error) {
	out := filepath.Join(dir, "hypergate")
	if given == "" {
		progress("building hypergate")
		given = filepath.Join(dir, "linked")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", given, "./cmd/hypergate")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building hypergate (run this from the root of the checkout): %w\n%s", err, text)
		}
	}
	return out, unpack(given, out)
}

// unpackPiece is the number of bytes that a container runtime writes at once when it unpacks an image.
const unpackPiece = 32 << 10

// unpack copies a binary in small writes, as a container runtime does.
//
// The page cache stores a file in pieces of the size in which it was written or read, up to 2 MiB. A newer kernel maps
// the whole piece when a process accesses one byte of it. If the linker has just written the binary, or one write has
// copied it, almost the whole binary would count in the RSS. A file that is read from disk in small parts is also
// stored in small pieces, so the figures are the same after a reboot of the node.
func unpack(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying the binary: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying the binary: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// The wrappers hide the methods of *os.File, which would copy in the kernel with another size of the pieces.
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, unpackPiece)); err != nil {
		return fmt.Errorf("copying the binary: %w", err)
	}
	return nil
}

// startController runs hypergate and waits until it has observed both sides and has nothing to do.
func (w *environment) startController(ctx context.Context) error {
	health, err := freeport.Addresses(ctx, 1)
	if err != nil {
		return err
	}
	p := &process{log: filepath.Join(w.dir, "hypergate.log"), health: health[0], ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the controller's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// CommandContext would kill the process. hypergate must end with SIGTERM, so that it releases its Lease.
	p.cmd = exec.Command(w.binary, "run", //nolint:noctx // see above
		"--namespace", w.cfg.MgmtNamespace,
		"--kubeconfig", w.pair.Mgmt.Kubeconfig, "--guest-kubeconfig", w.pair.Guest.Kubeconfig,
		"--istiod-guest-server", guestServer, "--xds-address", w.cfg.XDS.String(), "--webhook-host", w.cfg.WebhookHost,
		"--publish-probe", "off", // no server answers at the xDS address
		"--pilot-image", w.cfg.PilotImage, "--proxy-image", w.cfg.ProxyImage,
		"--protect-crds=false", // the policy would reject the drift of CRDs that the bench causes
		"--leader-elect=true", "--metrics-address", cmp.Or(w.metricsAddress, "0"), "--health-address", p.health)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting hypergate: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	w.controller = p
	if err := w.until(ctx, "hypergate is ready", p.ready); err != nil {
		return err
	}
	// hypergate installs the CRDs of the Gateway API when it starts.
	err = w.until(ctx, "the guest has GatewayClasses", func(ctx context.Context) (bool, error) {
		_, err := w.guest.meta.Resource(classes()).List(ctx, metav1.ListOptions{})
		return err == nil, ignoreNotFound(err)
	})
	if err != nil {
		return err
	}
	return w.settle(ctx)
}

func (w *environment) stopController() error {
	p := w.controller
	if p == nil {
		return nil
	}
	w.controller = nil
	if err := p.alive(); err != nil {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return errors.New("hypergate did not end within 20 s of SIGTERM and was killed")
	}
}

// alive returns an error if the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("hypergate ended: %w", errors.Join(p.err, errors.New("it should run until it is stopped")))
	default:
		return nil
	}
}

func (p *process) ready(ctx context.Context) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, nil // it does not listen yet
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK, nil
}

// memory returns the figures of /proc/<pid>/status in bytes.
func (p *process) memory() (map[string]int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return nil, fmt.Errorf("reading the controller's memory: %w", err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS", "VmHWM", "RssAnon", "RssFile":
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				return nil, fmt.Errorf("reading the controller's memory: %w", err)
			}
			out[name] = n << 10
		}
	}
	if len(out) != 4 {
		return nil, fmt.Errorf("reading the controller's memory: /proc shows only %v", out)
	}
	return out, nil
}

// controllerLog returns the end of hypergate's log, for use in an error.
func (w *environment) controllerLog() string {
	data, err := os.ReadFile(filepath.Join(w.dir, "hypergate.log"))
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte{'\n'})
	return "\nthe end of hypergate's log:\n" + string(bytes.Join(lines[max(0, len(lines)-8):], []byte{'\n'}))
}

// guestServer is the server in istiod's kubeconfig. No process uses it here.
const guestServer = "https://kube-apiserver:6443"
