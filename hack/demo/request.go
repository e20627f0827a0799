package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/world"
)

// host is the host of the demo's HTTPRoute.
const host = "echo.apps.guest1.example.com"

// request sends requests with curl from this machine until the gateway's pod answers one with 200, and prints it with
// its timing. On a standalone cluster, no proxy runs in the gateway's pod.
func request(ctx context.Context, w *world.World, out io.Writer) error {
	if !w.HasGuestNodes() {
		fmt.Fprintln(out, "    left out: no proxy runs in the gateways of the standalone demo")
		return nil
	}
	found, err := w.Gateways.Gateways(world.GuestNamespace).Get(ctx, gateway, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Gateway: %w", err)
	}
	if len(found.Status.Addresses) == 0 {
		return errors.New("the Gateway has no address")
	}
	begin, args := time.Now(), curl(net.JoinHostPort(found.Status.Addresses[0].Value, "80"))
	var last string
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		answer, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		last = strings.TrimSpace(string(answer))
		return err == nil && strings.Contains(last, "HTTP 200"), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for an answer of 200 (last: %s): %w", last, err)
	}
	fmt.Fprintf(out, "    the first answer came %.1f s after the Gateway was programmed\n", time.Since(begin).Seconds())
	again, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running curl: %w: %s", err, again)
	}
	fmt.Fprintf(out, "    $ %s\n", strings.Join(args, " "))
	for line := range strings.Lines(string(again)) {
		fmt.Fprintf(out, "    %s\n", strings.TrimRight(line, "\n"))
	}
	return nil
}

// curl returns a command that sends a request to an address, and prints the answer, the pod that sent it, and the
// timing.
func curl(address string) []string {
	return []string{
		"curl", "-sS", "--max-time", "5", "-H", "Host: " + host, "-w",
		"HTTP %{http_code} by pod %header{x-gateway-pod}: connected after %{time_connect} s, answered after %{time_total} s",
		"http://" + address + "/api/hello",
	}
}
