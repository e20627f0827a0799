package guest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
	"github.com/hypergate/hypergate/pkg/watch"
)

// TestAListVoidsALeaseThatItMustShow checks when an acquired Lease that no list shows still counts. After a restore of
// the guest's etcd, versions are older than that of the answer. Versions that are not numbers cannot be compared. Then
// the Lease does not count, and is acquired again.
func TestAListVoidsALeaseThatItMustShow(t *testing.T) {
	t.Parallel()
	const lease = "l"
	acquired := func(v *leaseView, version string) { v.acquired(model.HeldLease{Name: lease, UID: "u"}, version) }
	acquire := func(v *leaseView) { acquired(v, "900") }
	for name, c := range map[string]struct {
		do   func(v *leaseView)
		want bool
	}{
		"no list":               {acquire, true},
		"a newer list":          {func(v *leaseView) { acquire(v); v.listing(lease); v.listed(lease, "901") }, false},
		"a list of its version": {func(v *leaseView) { acquire(v); v.listing(lease); v.listed(lease, "900") }, false},
		"an older list that began later": {
			func(v *leaseView) { acquire(v); v.listing(lease); v.listed(lease, "600") }, false,
		},
		"an older list that began before": {
			func(v *leaseView) { v.listing(lease); acquire(v); v.listed(lease, "600") }, true,
		},
		"an older list of another Lease": {
			func(v *leaseView) { acquire(v); v.listing("other"); v.listed("other", "600") }, true,
		},
		"an event of a version that is not a number": {func(v *leaseView) { acquire(v); v.observed(lease, "x") }, false},
		"an event before it of a version that is not a number": {
			func(v *leaseView) { v.observed(lease, "x"); acquire(v) }, false,
		},
		"an answer with a version that is not a number": {func(v *leaseView) { acquired(v, "x") }, true},
		"an answer with a version that is not a number, and then an event": {
			func(v *leaseView) { acquired(v, "x"); v.observed(lease, "600") }, false,
		},
		"an answer with a version that is not a number, after an event": {
			func(v *leaseView) { v.observed(lease, "600"); acquired(v, "x") }, false,
		},
		"both versions are not numbers": {func(v *leaseView) { acquired(v, "x"); v.observed(lease, "x") }, false},
		"an answer that is late":        {func(v *leaseView) { v.listing(lease); v.listed(lease, "901"); acquire(v) }, false},
	} {
		v := &leaseView{made: map[string]writtenLease{}, at: map[string]string{}}
		c.do(v)
		if _, counts := v.made[lease]; counts != c.want {
			t.Errorf("%s: the Lease counts: %t, want %t", name, counts, c.want)
		}
	}
}

// TestALongIdentityOfALeaseIsNotKept checks that a Lease whose UID or version is too long counts as not acquired.
func TestALongIdentityOfALeaseIsNotKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		uid, version int
		want         bool
	}{
		"at the limits": {maxUID, watch.MaxVersion, true},
		"the UID":       {maxUID + 1, 1, false},
		"the version":   {1, watch.MaxVersion + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clusterOf(t, apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",`+
					`"metadata":{"name":"l","uid":"%s","resourceVersion":"%s"}}`,
					strings.Repeat("u", tc.uid), strings.Repeat("9", tc.version))
			}), model.Config{GuestNamespace: "n"})
			err := c.Acquire(t.Context(), ownership.Lease{Name: "l", Purpose: "the revision"}, "me")
			if (err == nil) != tc.want || len(c.leases.made) > 0 != tc.want {
				t.Errorf("%d Leases are kept: %v", len(c.leases.made), err)
			}
		})
	}
}
