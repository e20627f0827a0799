package guest

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
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
