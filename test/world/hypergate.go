package world

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/previous"
	"github.com/hypergate/hypergate/test/proc"
)

// Hypergate is a running hypergate: the container of a pod, or a process on this machine.
type Hypergate struct {
	instance
}

// instance is a container or a process.
type instance interface {
	// PID returns the process ID on this machine.
	PID() int
	// Done returns a channel that is closed when the process has ended. In a pod, the kubelet then starts another
	// one. See StartHypergate.
	Done() <-chan struct{}
	// Exit returns an error about the end of the process, with the end of its log. Call it only after Done.
	Exit() error
	// ExitCode returns the exit code, or -1 if a signal ended the process. Call it only after Done.
	ExitCode() int
	// Log returns the file with the output. The container runtime adds the time and two words before each line.
	Log() string
	// Kill ends the process with SIGKILL and returns when the process has ended.
	Kill()
	// Terminate ends hypergate gracefully and returns when it has ended. A pod is removed with its Deployment, so it
	// does not restart.
	Terminate()
	// Release is called when a caller no longer needs hypergate. A process ends. A pod continues, so that the next
	// StartHypergate can use it.
	Release()
	// healthAddress returns the address of the health checks, or an error if it is not known yet.
	healthAddress(ctx context.Context) (string, error)
}

// StartHypergate starts hypergate with additional arguments. Options.AsPod selects a pod or a process. It does not
// wait until hypergate is ready. See Ready.
//
// In the case of a pod, it applies the Deployment of deploy/ and returns when the container runs. If the Deployment
// does not change, the pod continues to run. After Kill, it returns when the kubelet has started the next container.
func (w *World) StartHypergate(ctx context.Context, more ...string) (*Hypergate, error) {
	if !w.options.AsPod {
		return w.StartProcess(ctx, more...)
	}
	c, err := w.startContainer(ctx, more)
	if err != nil {
		return nil, fmt.Errorf("starting hypergate's pod: %w", err)
	}
	return &Hypergate{c}, nil
}

// StartProcess starts hypergate as a process on this machine, with Args and additional arguments. Use it for cases
// that a pod does not allow, and for more than one hypergate. The process ends with this process, unless the world is
// detached. It does not wait until hypergate is ready. See Ready.
func (w *World) StartProcess(ctx context.Context, more ...string) (*Hypergate, error) {
	return w.startBinary(ctx, w.options.Binary, append(w.Args(), more...))
}

func (w *World) startBinary(ctx context.Context, binary string, args []string) (*Hypergate, error) {
	health, err := freeport.Addresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	argv := append([]string{binary}, append(args, "--health-address", health[0])...)
	p, err := proc.Spec{Name: "hypergate", LogDir: w.Dir, Argv: argv, Detach: w.options.Detach}.Start()
	if err != nil {
		return nil, err
	}
	return &Hypergate{process{p, health[0]}}, nil
}

// StartPrevious starts a previous hypergate as StartProcess does, and builds it before if necessary. It has the
// permissions of this one.
func (w *World) StartPrevious(ctx context.Context, version previous.Version, more ...string) (*Hypergate, error) {
	dir, err := previous.Build(ctx, version)
	if err != nil {
		return nil, err
	}
	args := w.Args()
	if i := slices.Index(args, "--kubeconfig"); i >= 0 && version != previous.Rollouts {
		args[i] = "--management-kubeconfig" // its name then
	}
	return w.startBinary(ctx, filepath.Join(dir, "hypergate"), append(args, more...))
}

// process is a process on this machine.
type process struct {
	*proc.Process
	health string
}

// Release ends the process.
func (p process) Release() { p.Terminate() }

func (p process) healthAddress(context.Context) (string, error) { return p.health, nil }

// Ready waits until a health check answers 200: "readyz", "readyz/guest", "readyz/management" or "healthz".
func (h *Hypergate) Ready(ctx context.Context, check string) error {
	last := "no answer"
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-h.Done():
			return false, h.Exit()
		default:
		}
		address, err := h.healthAddress(ctx)
		if err != nil {
			last = err.Error()
			return false, nil // not known yet
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/"+check, nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // not listening yet
		}
		defer func() { _ = response.Body.Close() }()
		last = response.Status
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for hypergate's %s (last: %s): %w", check, last, err)
	}
	return nil
}
