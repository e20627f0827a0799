package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/planes"
)

// atOnce is how many stories run at the same time, however many cores there are: a story waits for most of its time. Each has two API servers, and on
// slow machines those that rest take a tenth of a core each.
const atOnce = 3

// pairs are the two clusters that stories have one after another, as many of them as stories run at once; nil is a pair that nobody has started yet. Each
// story has its own namespaces, revision and controller name in them, and for as long as it runs nobody else does anything there.
var pairs = make(chan *planes.Pair, atOnce)

// takePair lets a story run beside others, with two clusters to itself.
func takePair(t *testing.T) *planes.Pair {
	t.Helper()
	needsServers(t)
	t.Parallel()
	return takePairAlone(t)
}

func needsServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs API servers: run without -short")
	}
}

// takePairAlone is for a story that no other one runs beside.
func takePairAlone(t *testing.T) *planes.Pair {
	t.Helper()
	needsServers(t)
	pair := <-pairs
	if pair == nil {
		var err error
		if pair, err = planes.Start(context.Background(), planes.Options{}); err != nil {
			pairs <- nil
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() { // it may have left anything behind
			if err := pair.Stop(); err != nil {
				t.Error(err)
			}
			pair = nil
		}
		pairs <- pair
	})
	return pair
}

// stopPairs ends all of them.
func stopPairs() error {
	var errs []error
	for range atOnce {
		if pair := <-pairs; pair != nil {
			errs = append(errs, pair.Stop())
		}
	}
	return errors.Join(errs...)
}

// haveCRDs sees to it that there may be classes before the story's own hypergate runs: another one installs the CRDs.
func (w *world) haveCRDs() {
	w.Helper()
	served := func() error {
		_, err := w.gateway.GatewayClasses().List(w.Context(), metav1.ListOptions{})
		return err
	}
	if served() == nil {
		return
	}
	other := newWorldOn(w.T, w.pair)
	stop := other.run()
	w.Eventually(served).Should(gomega.Succeed())
	other.settle()
	stop()
}
