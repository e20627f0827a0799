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
)

// record keeps a process's id and its start time, by which it is told from a later process of the same id.
func record(dir, name string, pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("%s ended at once; its log is %s", name, filepath.Join(dir, name+".log"))
	}
	line := fmt.Sprintf("%d %s\n", pid, started)
	if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte(line), 0o600); err != nil {
		return fmt.Errorf("recording the process of %s: %w", name, err)
	}
	return nil
}

// process is one that was recorded.
type process struct {
	name, file string
	pid        int
	running    bool
}

// recorded are the processes that were recorded in dir.
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
		now, err := startTime(p.pid)
		p.running = err == nil && now == started
		out = append(out, p)
	}
	return out, nil
}

// killRecorded ends the processes that were recorded in dir and still run.
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

// startTime is when a process started, in the kernel's ticks: field 22 of /proc/<pid>/stat, the 20th after the name in parentheses.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d has no start time", pid)
	}
	if fields[0] == "Z" {
		return "", fmt.Errorf("process %d has ended, and its parent did not look yet", pid)
	}
	return fields[19], nil
}

// startPlayer starts this program again, to play the guest's nodes after up has ended.
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
	command := exec.Command(kept, "play", "-dir", o.dir) //nolint:noctx // it outlives us
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting what plays the guest's nodes: %w", err)
	}
	return record(o.dir, playerPart, command.Process.Pid)
}
