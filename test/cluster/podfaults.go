package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/proc"
)

// This file has what tests do to the processes of a running pod, in the management cluster or on a node of the guest.

// ProcessIn returns the ID, on this machine, of a program's process in a running pod. It is an error if there is none,
// or more than one.
func (c *Cluster) ProcessIn(pod types.UID, program string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	var found []int
	for _, file := range files {
		name, _ := os.ReadFile(file) // empty if the process has ended
		if strings.TrimSpace(string(name)) != program[:min(len(program), longestName)] {
			continue
		}
		groups, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if !strings.Contains(string(groups), "/"+c.run.Cgroup+"/") || !strings.Contains(string(groups), "/pod"+string(pod)+"/") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return 0, err
		}
		found = append(found, pid)
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("pod %s has %d processes of %s: is it running?", pod, len(found), program)
	}
	return found[0], nil
}

// longestName is how much of a program's name the kernel keeps (TASK_COMM_LEN).
const longestName = 15

// KillIn kills the process of a program in a running pod, as a crash would, and returns when it has ended. The kubelet
// then starts the container again.
func (c *Cluster) KillIn(ctx context.Context, pod types.UID, program string) error {
	pid, err := c.ProcessIn(pod, program)
	if err != nil {
		return err
	}
	started, _ := proc.StartTime(pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s in pod %s: %w", program, pod, err)
	}
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, faultTimeout, true, func(context.Context) (bool, error) {
		now, running := proc.StartTime(pid)
		return !running || now != started, nil
	})
}

// GetIn sends a GET request from a running pod to a port of itself, and returns the body. No NetworkPolicy applies to
// it. The pod's image needs no program for this.
func (c *Cluster) GetIn(ctx context.Context, pod types.UID, port int, path string) (string, error) {
	pid, err := pidOf(c.run.Cgroup, pod)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "--net=/proc/"+pid+"/ns/net", "bash", "-c",
		`exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3 && cat <&3`, strconv.Itoa(port), path).Output()
	if err != nil {
		return "", fmt.Errorf("asking port %d of pod %s: %w", port, pod, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(out))), nil)
	if err != nil {
		return "", fmt.Errorf("reading the answer of port %d of pod %s: %w", port, pod, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("port %d of pod %s: %s", port, pod, response.Status)
	}
	return string(body), err
}

// DialIn connects from a running pod to a TCP port of itself. No NetworkPolicy applies to the connection.
func (c *Cluster) DialIn(ctx context.Context, pod types.UID, port int) (net.Conn, error) {
	pid, err := pidOf(c.run.Cgroup, pod)
	if err != nil {
		return nil, err
	}
	namespace, err := os.Open("/proc/" + pid + "/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }()
	type dialed struct {
		net.Conn
		error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in the pod's network, and ends with the goroutine
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- dialed{error: fmt.Errorf("entering the network of pod %s: %w", pod, err)}
			return
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
		done <- dialed{connection, err}
	}()
	result := <-done
	return result.Conn, result.error
}

// DropConnections drops all further packets of the open TCP connections from a program in a pod to a port. Neither
// end learns of it, as if a router had lost its state. New connections work. restore admits the packets again. It is
// an error if there are fewer connections than least.
func (c *Cluster) DropConnections(
	ctx context.Context, pod types.UID, program string, port uint16, least int,
) (restore func(context.Context) error, err error) {
	pid, err := c.ProcessIn(pod, program)
	if err != nil {
		return nil, err
	}
	sources, err := connections(pid, port)
	if err != nil {
		return nil, err
	}
	if len(sources) < least {
		return nil, fmt.Errorf("%s in pod %s has %d connections to port %d, want at least %d", program, pod, len(sources), port, least)
	}
	own := strings.Join(sources, ", ")
	script := fmt.Sprintf(`table ip hypergate-fault {
		chain output { type filter hook output priority 0; tcp dport %[1]d tcp sport { %[2]s } drop; }
		chain input { type filter hook input priority 0; tcp sport %[1]d tcp dport { %[2]s } drop; }
	}
`, port, own)
	if err := nftIn(ctx, pid, script); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return nftIn(ctx, pid, "delete table ip hypergate-fault\n") }, nil
}

// CutOff drops all packets of a running pod, in both directions, as if its node had lost the network. restore admits
// them again.
func (c *Cluster) CutOff(ctx context.Context, pod types.UID) (restore func(context.Context) error, err error) {
	found, err := pidOf(c.run.Cgroup, pod)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(found)
	if err != nil {
		return nil, err
	}
	const script = `table inet hypergate-cut {
		chain output { type filter hook output priority 0; policy drop; }
		chain input { type filter hook input priority 0; policy drop; }
	}
`
	if err := nftIn(ctx, pid, script); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return nftIn(ctx, pid, "delete table inet hypergate-cut\n") }, nil
}

// nftIn runs a script of nft in the network namespace of a process.
func nftIn(ctx context.Context, pid int, script string) error {
	command := exec.CommandContext(ctx, "nsenter", "--net=/proc/"+strconv.Itoa(pid)+"/ns/net", "nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running nft (Debian package nftables) in the network of process %d: %w: %s", pid, err, out)
	}
	return nil
}

// Columns of /proc/<pid>/net/tcp, and the state of an open connection (Linux net/ipv4/tcp_ipv4.c, tcp4_seq_show).
const (
	tcpLocal, tcpRemote, tcpState, tcpUser = 1, 2, 3, 7
	tcpEstablished                         = "01"
)

// connections returns the local ports of the open connections to a port, in the network and of the user of a process.
func connections(pid int, port uint16) ([]string, error) {
	folder := "/proc/" + strconv.Itoa(pid)
	info, err := os.Stat(folder)
	if err != nil {
		return nil, err
	}
	owner, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return nil, errors.New("the owner of a process is not known on this system")
	}
	table, err := os.ReadFile(folder + "/net/tcp")
	if err != nil {
		return nil, err
	}
	var local []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) <= tcpUser || fields[tcpState] != tcpEstablished || fields[tcpUser] != strconv.Itoa(int(owner.Uid)) ||
			!strings.HasSuffix(fields[tcpRemote], fmt.Sprintf(":%04X", port)) {
			continue
		}
		_, digits, _ := strings.Cut(fields[tcpLocal], ":")
		number, err := strconv.ParseUint(digits, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("reading %s/net/tcp: %w", folder, err)
		}
		local = append(local, strconv.FormatUint(number, 10))
	}
	slices.Sort(local)
	return local, nil
}
