package guest

import (
	"testing"

	"github.com/hypergate/hypergate/pkg/model"
)

// TestAListVoidsALeaseThatItMustShow checks when an acquired Lease that no list shows still counts. After a restore of
// the guest's etcd, versions are older than that of the answer.
func TestAListVoidsALeaseThatItMustShow(t *testing.T) {
	t.Parallel()
	const lease = "l"
	acquire := func(v *leaseView) { v.acquired(model.HeldLease{Name: lease, UID: "u"}, "900") }
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
		"an answer that is late": {func(v *leaseView) { v.listing(lease); v.listed(lease, "901"); acquire(v) }, false},
	} {
		v := &leaseView{made: map[string]writtenLease{}, at: map[string]string{}}
		c.do(v)
		if _, counts := v.made[lease]; counts != c.want {
			t.Errorf("%s: the Lease counts: %t, want %t", name, counts, c.want)
		}
	}
}
