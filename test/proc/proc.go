// Package proc runs one long-lived server process. Its log goes to a file, and it cannot outlive this process. If it
// ends, the error contains the end of its log.
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
	err  error // the reason for the end; valid once done is closed
}

// Spec describes a process to start. Only Name, LogDir and Argv are required.
type Spec struct {
	Name, LogDir string
	Argv         []string
	Env          []string // in addition to the environment of this process
	Stdin        *os.File
	Cloneflags   uintptr // namespaces for the child
	Detach       bool    // the child may outlive this process
}

// Start runs argv and appends its output to <logDir>/<name>.log.
func Start(name, logDir string, argv ...string) (*Process, error) {
	return Spec{Name: name, LogDir: logDir, Argv: argv}.Start()
}

// Start starts the process.
//
// Unless detached, the child gets SIGKILL when this process ends, for any reason. The kernel ties that signal to the
// *thread* that forked the child. So the goroutine that starts the child keeps its thread locked until the child has
// ended.
//
// The child also gets its own session. So a Ctrl-C at the terminal does not kill the servers before the clean-up
// runs.
func (s Spec) Start() (*Process, error) {
	p := &Process{Name: s.Name, log: filepath.Join(s.LogDir, s.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", s.Name, err)
	}
	p.cmd = exec.Command(s.Argv[0], s.Argv[1:]...) //nolint:noctx // it runs until Kill, beyond the life of its starter
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

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Guard returns a context for work that depends on this process. The context is cancelled when the process ends, with
// Exit as cause.
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

// Exit returns an error about the end of the process, with the end of its log. Call it only after Done.
func (p *Process) Exit() error {
	status := p.err
	if status == nil {
		status = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); the end of %s:\n%s", p.Name, status, p.log, Tail(p.log, 15))
}

// Kill ends the process with SIGKILL and returns when it has ended. It does not use SIGTERM, because a kube-apiserver
// with open watches takes a minute to end then. The servers' data is deleted or is in an etcd that does not need a
// clean end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has already ended
	<-p.done
}

// Terminate ends the process with SIGTERM and returns when it has ended.
func (p *Process) Terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // as above
	<-p.done
}

// ExitCode returns the exit code, or -1 if a signal ended the process. Call it only after Done.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Log returns the file with the output.
func (p *Process) Log() string { return p.log }

// StartTime returns the start time of a process on this machine, in the kernel's ticks. It distinguishes the process
// from a later one with the same ID. It is field 22 of /proc/<pid>/stat, the 20th after the name in parentheses.
// running is false if the process does not exist or is a zombie.
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

// Tail returns the last lines of a file, or the reason why it cannot read them. It is only for error messages.
func Tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
