package e2e_test

import (
	"context"
	"errors"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/test/cluster"
)

// This file has the faults that a story begins and ends.

// outage begins a fault, and returns what ends it. If the story fails before, the fault ends with the story: later
// stories need what it has stopped. If the end itself fails, it may have started a part, which cannot start again.
func (t *fixture) outage(begin, end func(context.Context) error) func() {
	t.Helper()
	over := false
	t.Cleanup(func() {
		if over {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout) // that of the story can have ended
		defer cancel()
		if err := end(ctx); err != nil {
			t.Log("ending the fault:", err)
		}
	})
	t.Expect(begin(t.step())).To(gomega.Succeed())
	return func() {
		t.Helper()
		t.Expect(end(t.step())).To(gomega.Succeed())
		over = true
	}
}

// withoutGuestAPI stops the guest's API server, and returns what starts it again.
func (t *fixture) withoutGuestAPI() (back func()) {
	t.Helper()
	return t.outage(t.StopGuestAPI, t.StartGuestAPI)
}

// withoutMgmtAPI stops the management API server, and returns what starts it again.
func (t *fixture) withoutMgmtAPI() (back func()) {
	t.Helper()
	return t.outage(t.StopMgmtAPI, t.StartMgmtAPI)
}

// withoutKonnectivity stops the agents on all nodes of the guest, and returns what starts them again.
func (t *fixture) withoutKonnectivity() (back func()) {
	t.Helper()
	onEachNode := func(do func(*cluster.GuestNode, context.Context, string) error) func(context.Context) error {
		return func(ctx context.Context) error {
			var errs []error
			for _, node := range t.GuestNodes {
				errs = append(errs, do(node, ctx, cluster.KonnectivityAgent))
			}
			return errors.Join(errs...)
		}
	}
	return t.outage(onEachNode((*cluster.GuestNode).Stop), onEachNode((*cluster.GuestNode).Start))
}
