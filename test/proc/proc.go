// Package proc runs one long-lived server process: its log goes to a file, it cannot outlive this process, and its death is an error
// that shows the end of its log.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Process is a started server.
type Process struct {
	Name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // why it ended; valid once done is closed
}

// Spec says what to start and how. Only Name, LogDir and Argv are needed.
type Spec struct {
	Name, LogDir string
	Argv         []string
	Env          []string // in addition to this process's own
	Stdin        *os.File
	Cloneflags   uintptr // namespaces for the child
	Detach       bool    // the child may outlive this process
}

// Start runs argv with its output appended to <logDir>/<name>.log.
func Start(name, logDir string, argv ...string) (*Process, error) {
	return Spec{Name: name, LogDir: logDir, Argv: argv}.Start()
}

// Start starts the process.
//
// Unless detached, the child gets SIGKILL when this process dies, however it dies. The kernel ties that signal to the *thread* that
// forked the child, so the goroutine that starts it keeps its thread locked until the child has ended.
// It also gets a session of its own, so that a Ctrl-C at the terminal does not kill the servers before the clean-up runs.
func (s Spec) Start() (*Process, error) {
	p := &Process{Name: s.Name, log: filepath.Join(s.LogDir, s.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", s.Name, err)
	}
	p.cmd = exec.Command(s.Argv[0], s.Argv[1:]...) //nolint:noctx // it runs until Kill, not until its starter is done
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if s.Stdin != nil {
		p.cmd.Stdin = s.Stdin
	}
	p.cmd.Env = append(os.Environ(), s.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: s.Cloneflags}
	if !s.Detach {
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer func() { _ = log.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.Name, err)
	}
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Guard returns a context for things that make no sense without this process: it is cancelled when the process ends, with Exit as cause.
func (p *Process) Guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(p.Exit())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Exit says how the process ended, with the end of its log. Call it only after Done.
func (p *Process) Exit() error {
	status := p.err
	if status == nil {
		status = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); the end of %s:\n%s", p.Name, status, p.log, Tail(p.log, 15))
}

// Kill ends the process with SIGKILL and returns when it is gone. Not SIGTERM: a kube-apiserver with open watches takes a minute to
// obey it, and these servers' data is thrown away or in an etcd that does not depend on a clean end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has already ended
	<-p.done
}

// Terminate asks the process to end with SIGTERM and returns when it is gone.
func (p *Process) Terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // as above
	<-p.done
}

// ExitCode is the exit code, or -1 when a signal ended it. Call it only after Done.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Log is the file that the output goes to.
func (p *Process) Log() string { return p.log }

// StartTime is when a process of this machine started, in the kernel's ticks, by which it is told from a later one of the same id: field 22 of
// /proc/<pid>/stat, the 20th after the name in parentheses. It does not run if it is not there, or has ended and nobody has looked yet.
func StartTime(pid int) (ticks string, running bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return "", false
	}
	return fields[19], true
}

// Tail returns the last lines of a file, or a remark that says why it cannot; it is for error messages only.
func Tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
