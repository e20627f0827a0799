package controller

import (
	"bytes"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// TestTheSidecarsCertificate checks when the certificate of the tunnel's sidecar is issued: once, in time before its
// end, and at once after the mesh CA changed. Without a CA, the certificate in use stays.
func TestTheSidecarsCertificate(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(start)
	r := &Reconciler{clock: clock, config: model.Config{Revision: "r"}}
	ca, next := newTestCA(t), newTestCA(t)
	var last []byte
	for _, step := range []struct {
		name  string
		after time.Duration
		ca    pki.CA
		fresh bool
	}{
		{"the first", 0, ca, true},
		{"the same", time.Hour, ca, false},
		{"another CA", 2 * time.Hour, next, true},
		{"no CA is known", 3 * time.Hour, pki.CA{}, false},
		{"before it is due", 19 * 24 * time.Hour, next, false},
		{"due", 21 * 24 * time.Hour, next, true},
		{"the clock is as far behind as that of a node may be", 21*24*time.Hour - 4*time.Minute, next, false},
		{"the clock was ahead", 21*24*time.Hour - 2*time.Hour, next, true},
		{"the same, after it went back", 21*24*time.Hour - 2*time.Hour, next, false},
	} {
		clock.SetTime(start.Add(step.after))
		e := &execution{Reconciler: r, ca: step.ca}
		serving, err := e.currentServing()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if fresh := !bytes.Equal(serving.Cert, last); fresh != step.fresh {
			t.Errorf("%s: it is new: %t", step.name, fresh)
		}
		last = serving.Cert
		if again := e.outcome.requeue; step.ca.Exists() && (again <= 0 || again > 21*24*time.Hour) {
			t.Errorf("%s: the next look is after %s", step.name, again)
		}
	}
	e := &execution{Reconciler: r, ca: pki.CA{Root: ca.Root}}
	if _, err := e.currentServing(); err == nil {
		t.Error("a CA without a key issues a certificate")
	}
}

func newTestCA(t *testing.T) pki.CA {
	t.Helper()
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}
