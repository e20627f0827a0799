package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/test/cluster/planes"
)

// atOnce is the number of tests that run in parallel, for any number of cores, because a test spends most of its time
// waiting. Each has two API servers. On slow machines, an idle one uses a tenth of a core.
const atOnce = 3

// pairs are the pairs of clusters that tests use one after another. There are as many as parallel tests. Nil is a
// pair that is not started yet. Each test has its own namespaces, revision and controller name, and uses its pair
// exclusively.
var pairs = make(chan *planes.Pair, atOnce)

// takePair lets a test run in parallel with others, with its own pair of clusters.
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

// takePairAlone returns a pair for a test that does not run in parallel with others.
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

// stopPairs stops all pairs.
func stopPairs() error {
	var errs []error
	for range atOnce {
		if pair := <-pairs; pair != nil {
			errs = append(errs, pair.Stop())
		}
	}
	return errors.Join(errs...)
}

// haveCRDs installs the CRDs, so that classes can exist before the test's own hypergate runs. Another hypergate
// installs them.
func (w *harness) haveCRDs() {
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
