package world

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/proc"
)

// Hypergate is a running hypergate: the container of a pod, or a process of this machine.
type Hypergate struct {
	instance
}

// instance is a container, or a process.
type instance interface {
	// PID is its process on this machine.
	PID() int
	// Done is closed when the process has ended. The kubelet starts another one in the pod then; see StartHypergate.
	Done() <-chan struct{}
	// Exit says how it ended, with the end of its log. Call it only after Done.
	Exit() error
	// ExitCode is the exit code, or -1 when a signal ended it. Call it only after Done.
	ExitCode() int
	// Log is the file that the output goes to. The container runtime puts the time and two words before each line.
	Log() string
	// Kill ends the process with SIGKILL and returns when it is gone.
	Kill()
	// Terminate ends hypergate in order and for good: a pod goes with its Deployment. It returns when it is gone.
	Terminate()
	// Release says that nobody needs it any more: a process ends, and a pod works on for whoever starts hypergate next.
	Release()
	// healthAddress is where its health checks answer, as far as is known yet.
	healthAddress(ctx context.Context) (string, error)
}

// StartHypergate starts hypergate with more arguments, as AsPod says, and does not wait until it is ready; see Ready.
//
// As the pod: it applies the Deployment of deploy/, and returns when the container runs. If that changes nothing the pod works on, as it
// would anywhere, and after Kill it returns when the kubelet has started the next container.
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

// StartProcess starts hypergate as a process of this machine, with Args and more arguments: for what no pod can do, and for more than one. It ends
// with this process, unless the world is detached. It does not wait; see Ready.
func (w *World) StartProcess(ctx context.Context, more ...string) (*Hypergate, error) {
	health, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	argv := append([]string{w.options.Binary}, append(append(w.Args(), "--health-address", health), more...)...)
	p, err := proc.Spec{Name: "hypergate", LogDir: w.Dir, Argv: argv, Detach: w.options.Detach}.Start()
	if err != nil {
		return nil, err
	}
	return &Hypergate{process{p, health}}, nil
}

// process is a process of this machine.
type process struct {
	*proc.Process
	health string
}

// Release ends it.
func (p process) Release() { p.Terminate() }

func (p process) healthAddress(context.Context) (string, error) { return p.health, nil }

// Ready waits until a health check answers 200: "readyz", "readyz/guest", "readyz/management", "healthz".
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

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
