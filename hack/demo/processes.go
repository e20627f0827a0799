package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hypergate/hypergate/test/proc"
)

// record writes a process's ID and its start time to a file. The start time distinguishes it from a later process with
// the same ID.
func record(dir, name string, pid int) error {
	started, running := proc.StartTime(pid)
	if !running {
		return fmt.Errorf("%s ended at once; its log is %s", name, filepath.Join(dir, name+".log"))
	}
	line := fmt.Sprintf("%d %s\n", pid, started)
	if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte(line), 0o600); err != nil {
		return fmt.Errorf("recording the process of %s: %w", name, err)
	}
	return nil
}

// process is a recorded process.
type process struct {
	name, file string
	pid        int
	running    bool
}

// recorded returns the processes that are recorded in dir.
func recorded(dir string) ([]process, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pid"))
	if err != nil {
		return nil, fmt.Errorf("finding what runs: %w", err)
	}
	out := make([]process, 0, len(files))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("finding what runs: %w", err)
		}
		pid, started, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		p := process{name: strings.TrimSuffix(filepath.Base(file), ".pid"), file: file}
		if p.pid, err = strconv.Atoi(pid); err != nil {
			return nil, fmt.Errorf("finding what runs: %s holds %q", file, data)
		}
		now, running := proc.StartTime(p.pid)
		p.running = running && now == started
		out = append(out, p)
	}
	return out, nil
}

// killRecorded ends the processes that are recorded in dir and still run.
func killRecorded(dir string) error {
	processes, err := recorded(dir)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.running {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending process %d: %w", p.pid, err)
			}
		}
		if err := os.Remove(p.file); err != nil {
			return fmt.Errorf("forgetting process %d: %w", p.pid, err)
		}
	}
	return nil
}

// startPlayer starts this program a second time, to simulate the guest's nodes after up has ended.
func startPlayer(o options) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	// `go run` removes its binary when it ends.
	kept := filepath.Join(o.dir, "demo")
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(kept, data, 0o700)
	}
	if err != nil {
		return fmt.Errorf("keeping this program: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(o.dir, playerPart+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the player's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(kept, "play", "-dir", o.dir) //nolint:noctx // it outlives this process
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting what plays the guest's nodes: %w", err)
	}
	return record(o.dir, playerPart, command.Process.Pid)
}
