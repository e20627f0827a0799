package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// inside is the variable that is set in the namespace.
const inside = "HYPERGATE_TEST_NETNS"

// Addresses of pods. All are on the loopback interface of the namespace, and none is a loopback address.
const (
	relay0IP = "10.203.0.10"
	relay1IP = "10.203.0.11"
	istiodIP = "10.203.0.20"
	// gatewayNet has the addresses of gateways: a relay limits the connections from one address.
	gatewayNet = "10.204.0.0/24"
)

// TestMain runs the tests in a network namespace. Without root, the namespace belongs to a user namespace.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "preparing the network namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the kernel ends the child with the thread that started it
	command := exec.CommandContext(context.Background(), os.Args[0], os.Args[1:]...)
	command.Env = append(os.Environ(), inside+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := command.Run()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running in a network namespace (needs root, or user namespaces):", err)
		os.Exit(1)
	}
}

// prepare gives the namespace its addresses.
func prepare() error {
	commands := []string{"link set lo up"}
	for _, ip := range []string{relay0IP, relay1IP, istiodIP} {
		commands = append(commands, "addr add "+ip+"/32 dev lo")
	}
	commands = append(commands, "route add local "+gatewayNet+" dev lo")
	for _, c := range commands {
		if out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}
