package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/pki"
)

const overlap = 24 * time.Hour

func roots(t *testing.T, bundle []byte) int {
	t.Helper()
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

// vouched reports whether a client with the given bundle trusts an issuing CA.
func vouched(t *testing.T, bundle []byte, by pki.CA, at time.Time) bool {
	t.Helper()
	block, _ := pem.Decode(by.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	_, err = cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// step calls Step, and treats the result as known to all clients immediately.
func step(t *testing.T, r pki.Rotation, ca pki.CA, at time.Time, request string) (pki.CA, pki.Rotation) {
	t.Helper()
	was := r.Phase
	ca, r, err := r.Step(ca, at, pki.RotationOptions{Overlap: overlap, Request: request})
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Check(at); err != nil {
		t.Fatalf("phase %q: %v", r.Phase, err)
	}
	if err := r.Check(ca, at); err != nil {
		t.Fatalf("phase %q: %v", r.Phase, err)
	}
	if r.Phase != was {
		r.Effective = at
	}
	return ca, r
}

// TestRequestsAreIndependent checks that a request on the Secret and one on the Lease cause a rotation each, and that
// none is followed twice, whatever happens to the other.
func TestRequestsAreIndependent(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	now, r, rotations := start, pki.Rotation{}, 0
	for i, o := range []pki.RotationOptions{
		{},
		{Request: "a"},
		{Request: "a", LeaseRequest: "a"},
		{Request: "a", LeaseRequest: "b"},
		{LeaseRequest: "b"},
		{Request: "a"},
		{Request: "b", LeaseRequest: "b"},
		{Request: "b"},
		{},
		{Request: "b", LeaseRequest: "b"},
	} {
		o.Overlap = overlap
		want := i >= 1 && i <= 3 || i == 6
		if due, _, err := r.Due(ca, now, o); err != nil || due != want {
			t.Fatalf("%d: due %t, want %t: %v", i, due, want, err)
		}
		for range 3 { // all phases
			if ca, r, err = r.Step(ca, now, o); err != nil {
				t.Fatal(err)
			}
			if r.Phase == pki.Settling && r.Effective.IsZero() {
				rotations++
			}
			r.Effective, now = now, now.Add(overlap)
		}
		if r.Phase != pki.Steady {
			t.Fatalf("%d: phase %q at the end", i, r.Phase)
		}
		r.Effective = time.Time{}
	}
	if rotations != 4 {
		t.Errorf("%d rotations, want 4", rotations)
	}
}

// TestARotationIssuesOnlyTrustedCertificates checks trust between neighbouring phases. A client that is one
// phase behind must trust the current issuing CA. An up-to-date client must trust the issuing CA of one phase ago.
func TestARotationIssuesOnlyTrustedCertificates(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	old, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	ca, r := old, pki.Rotation{}
	var phases []pki.RotationPhase
	var trusted []int
	at := start
	for i := range 8 {
		before := ca
		ca, r = step(t, r, ca, at, "please")
		if !vouched(t, before.Root, ca, at) || !vouched(t, ca.Root, before, at) {
			t.Fatalf("step %d, phase %q: neighbours do not trust each other", i, r.Phase)
		}
		phases, trusted = append(phases, r.Phase), append(trusted, roots(t, ca.Root))
		at = at.Add(overlap / 2)
	}
	want := []pki.RotationPhase{"spreading", "spreading", "settling", "settling", "", "", "", ""}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("phases, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{2, 2, 2, 2, 1, 1, 1, 1}, trusted); diff != "" {
		t.Errorf("roots, -want +got:\n%s", diff)
	}
	if vouched(t, ca.Root, old, at) {
		t.Error("the old root is still trusted")
	}
	if r.Request != "please" {
		t.Errorf("the request that was followed is %q", r.Request)
	}
}

// TestPhasesHaveTheirFullDurationAfterAnOutage checks that after a year each phase still has its full duration.
func TestPhasesHaveTheirFullDurationAfterAnOutage(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	ca, r := step(t, pki.Rotation{}, ca, start, "please")
	late := start.AddDate(1, 0, 0)
	ca, r = step(t, r, ca, late, "please")
	if r.Phase != pki.Settling || !r.Since.Equal(late) {
		t.Errorf("phase %q since %s, want settling since now", r.Phase, r.Since)
	}
	if _, again := step(t, r, ca, late, "please"); again.Phase != pki.Settling {
		t.Errorf("phase %q at once after that", again.Phase)
	}
}

// TestAPhaseStartsWhenItTakesEffect checks that the duration of a phase does not start before clients can know the
// new root.
func TestAPhaseStartsWhenItTakesEffect(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	ca, r := step(t, pki.Rotation{}, ca, start, "please")
	r.Effective = time.Time{}
	if _, got, err := r.Step(ca, start.AddDate(1, 0, 0), pki.RotationOptions{Overlap: overlap}); err != nil || got.Phase != pki.Spreading {
		t.Errorf("before the phase is in effect: phase %q, %v", got.Phase, err)
	}
	r.Effective = start.Add(20 * time.Hour)
	for at, want := range map[time.Time]pki.RotationPhase{start.Add(overlap): pki.Spreading, r.Effective.Add(overlap): pki.Settling} {
		_, got, err := r.Step(ca, at, pki.RotationOptions{Overlap: overlap})
		if err != nil || got.Phase != want || want == pki.Settling && !got.Effective.IsZero() {
			t.Errorf("after %s: phase %q, effective %s, %v, want %q", at.Sub(start), got.Phase, got.Effective, err, want)
		}
	}
}

func TestAnOldCAIsRotated(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	now, due, err := pki.Rotation{}.Due(ca, start, pki.RotationOptions{})
	if err != nil || now {
		t.Fatal(now, err)
	}
	if asked, _, err := (pki.Rotation{}).Due(ca, start, pki.RotationOptions{Request: "please"}); err != nil || !asked {
		t.Errorf("requested: due %t, %v", asked, err)
	}
	if years := due.Sub(start).Hours() / 24 / 365; years < 3.9 || years > 4.1 {
		t.Errorf("due after %.1f years, want four fifths of five", years)
	}
	if _, r := step(t, pki.Rotation{}, ca, due.Add(-time.Second), ""); r.Phase != pki.Steady {
		t.Errorf("phase %q before it is due", r.Phase)
	}
	if _, r := step(t, pki.Rotation{}, ca, due, ""); r.Phase != pki.Spreading {
		t.Errorf("phase %q when it is due", r.Phase)
	}
	if _, r := step(t, pki.Rotation{Request: "done"}, ca, start, "done"); r.Phase != pki.Steady {
		t.Errorf("phase %q for a request that was followed", r.Phase)
	}
}

func TestAnInvalidRotationIsReported(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	spreading, r := step(t, pki.Rotation{}, ca, start, "please")
	for name, tc := range map[string]struct {
		ca       pki.CA
		rotation pki.Rotation
	}{
		"the next root is not trusted": {ca, r},
		"the next CA is lost":          {spreading, pki.Rotation{Phase: pki.Spreading}},
		"the next root is lost":        {spreading, pki.Rotation{Phase: pki.Settling}},
		"a phase from another version": {spreading, pki.Rotation{Phase: "resting", Next: r.Next}},
		"the next CA has another's key": {
			spreading,
			pki.Rotation{Phase: pki.Spreading, Next: pki.CA{Cert: r.Next.Cert, Root: r.Next.Root, Chain: r.Next.Chain, Key: ca.Key}},
		},
	} {
		if err := tc.rotation.Check(tc.ca, start); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := (pki.Rotation{Phase: "resting"}).Step(ca, start, pki.RotationOptions{}); err == nil {
		t.Error("an unknown phase is accepted")
	}
}
