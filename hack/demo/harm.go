package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/world"
)

// victim is an object that the demo deletes and that hypergate must restore.
type victim struct {
	name   string
	uid    func(context.Context) (types.UID, error)
	remove func(context.Context) error
}

// harm deletes an object on each side, waits until hypergate has restored it, and shows hypergate's log about it.
func harm(ctx context.Context, w *world.World, out io.Writer) error {
	name := "istiod-" + world.Revision
	roles, services := w.GuestClient.RbacV1().ClusterRoles(), w.MgmtClient.CoreV1().Services(w.MgmtNamespace)
	log := w.HypergateLog()
	before, err := os.Stat(log)
	if err != nil {
		return fmt.Errorf("reading hypergate's log: %w", err)
	}
	for _, v := range []victim{
		{
			"ClusterRole " + world.GuestIstiod + " of the guest",
			func(ctx context.Context) (types.UID, error) {
				return uidOf(roles.Get(ctx, world.GuestIstiod, metav1.GetOptions{}))
			},
			func(ctx context.Context) error { return roles.Delete(ctx, world.GuestIstiod, metav1.DeleteOptions{}) },
		},
		{
			"Service " + name + " of the management side",
			func(ctx context.Context) (types.UID, error) {
				return uidOf(services.Get(ctx, name, metav1.GetOptions{}))
			},
			func(ctx context.Context) error { return services.Delete(ctx, name, metav1.DeleteOptions{}) },
		},
	} {
		if err := v.comesBack(ctx, out); err != nil {
			return err
		}
	}
	return said(ctx, log, before.Size(), out)
}

func uidOf(o metav1.Object, err error) (types.UID, error) {
	if err != nil {
		return "", err
	}
	return o.GetUID(), nil
}

func (v victim) comesBack(ctx context.Context, out io.Writer) error {
	old, err := v.uid(ctx)
	if err == nil {
		err = v.remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", v.name, err)
	}
	begin := time.Now()
	err = wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, err := v.uid(ctx)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && now != old, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to come back: %w", v.name, err)
	}
	_, err = fmt.Fprintf(out, "    %s was back after %d ms\n", v.name, time.Since(begin).Milliseconds())
	return err
}

// said prints the lines of hypergate's log about its writes, starting at an offset. The last line appears shortly after
// the write.
func said(ctx context.Context, log string, offset int64, out io.Writer) error {
	const writes = 2
	var lines []string
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 3*time.Second, true, func(context.Context) (bool, error) {
		data, err := os.ReadFile(log)
		if err != nil {
			return false, err
		}
		lines = nil
		for line := range strings.Lines(string(data[offset:])) {
			if strings.Contains(line, "msg=Applied") {
				_, said, _ := strings.Cut(line, " F ") // the container runtime writes the prefix up to here
				lines = append(lines, strings.TrimSpace(said))
			}
		}
		return len(lines) >= writes, nil
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("reading hypergate's log: %w", err)
	}
	for _, line := range lines {
		fmt.Fprintf(out, "    %s\n", line)
	}
	return nil
}
