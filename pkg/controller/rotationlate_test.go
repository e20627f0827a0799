package controller

import (
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestARotationThatWaitsTooLongIsLate checks when a rotation that the guest, or istiod, does not let proceed becomes a
// problem, and that the conditions name what it waits for with the next step.
func TestARotationThatWaitsTooLongIsLate(t *testing.T) {
	d := newTestDecider(t)
	ca, err := pki.New(start)
	if err != nil {
		t.Fatal(err)
	}
	const notPublished = "istiod to publish the roots in the guest"
	publish := "check hypergate's permission to read ConfigMap " + d.config.GuestNamespace + "/" +
		d.config.TrustBundleName() + " in the guest, and that no admission policy there denies istiod's write"
	for name, tc := range map[string]struct {
		overlap, after time.Duration
		untrusted      bool
		roots          string
		want           status.RotationWait
	}{
		"just before": {
			overlap: 24 * time.Hour, after: 48*time.Hour - 1, roots: notPublished, want: status.RotationWait{For: notPublished},
		},
		"late": {
			overlap: 24 * time.Hour, after: 48 * time.Hour, roots: notPublished, want: status.RotationWait{For: notPublished, IsLate: true},
		},
		"a short overlap": {
			overlap: time.Minute, after: rotationPatience, roots: notPublished, want: status.RotationWait{For: notPublished},
		},
		"a short overlap, late": {
			overlap: time.Minute, after: rotationPatience + time.Minute, untrusted: true,
			want: status.RotationWait{
				For: rotationObjects, Step: "follow what Degraded and Progressing say about objects that are not as planned", IsLate: true,
			},
		},
		"it waits for nothing": {overlap: time.Minute, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			d := d
			d.ca.overlap, d.ca.trusted = tc.overlap, !tc.untrusted
			both, spreading, err := pki.Rotation{}.Step(ca, start, pki.RotationOptions{Overlap: tc.overlap, Request: "now"})
			if err != nil {
				t.Fatal(err)
			}
			o := d.observed(func(o *observation) {
				o.mgmt.CA, o.mgmt.Rotation, o.mgmt.RotationRequest, o.roots = both, spreading, "now", tc.roots
				o.now = start.Add(tc.after)
			})
			step, err := d.decideCA(o)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.For == notPublished {
				tc.want.Step = publish
			}
			got := known{config: d.config, decision: converge{ca: step}}.hcpResult(status.Result{})
			if got.RotationWait != tc.want {
				t.Errorf("%+v, want %+v", got.RotationWait, tc.want)
			}
			if tc.want.For != "" && got.Rotation != string(pki.Spreading) {
				t.Errorf("phase %q", got.Rotation)
			}
		})
	}
}
