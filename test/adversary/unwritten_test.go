package adversary_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/freeport"
)

// denyStatuses makes a server answer each patch of a status of this resource as RBAC does, until the returned function
// is called. denied counts the patches.
func denyStatuses(s *adversary.Server, group, resource string, denied *atomic.Int64) (allow func()) {
	var allowed atomic.Bool
	s.Between(func(w http.ResponseWriter, r *http.Request) bool {
		denies := r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/"+resource+"/") &&
			strings.HasSuffix(r.URL.Path, "/status") && !allowed.Load()
		if denies {
			denied.Add(1)
			adversary.Fail(w, http.StatusForbidden, "Forbidden", resource+` "x" is forbidden: User "u" cannot patch resource "`+
				resource+`/status" in API group "`+group+`"`)
		}
		return denies
	})
	return func() { allowed.Store(true) }
}

// TestADeniedStatusOfAClassIsReported checks that Degraded names a class whose status the guest denies, that the write
// is repeated with backoff, and that the report is one write. Once the guest allows the write, Degraded is False.
func TestADeniedStatusOfAClassIsReported(t *testing.T) {
	t.Parallel()
	m, g, _ := start(t)
	var denied atomic.Int64
	allow := denyStatuses(g, "gateway.networking.k8s.io", classes, &denied)
	putClass(g, "demo")
	eventually(t, "both sides are installed", func() bool { return installed(m, g) })
	const text = "Forbidden writing the status of GatewayClass demo: not allowed to patch gatewayclasses/status"
	eventually(t, "the denial is reported", func() bool { return reported(m, text) })

	reports := func() (n int) {
		for _, request := range m.Requests(http.MethodPatch) {
			if strings.Contains(request, "/"+hcps+"/") {
				n++
			}
		}
		return n
	}
	eventually(t, "the webhook fails closed", func() bool { return adversary.WebhookFailsClosed(g) })
	eventually(t, "the installation has ended", func() bool { return reported(m, "everything is up to date") })
	writes, before := denied.Load(), reports()
	gomega.NewWithT(t).Consistently(reports, "5s").Should(gomega.Equal(before), "the reports of a denial that lasts")
	if n := denied.Load() - writes; n > 5 {
		t.Errorf("%d writes of a status that is denied in five seconds", n)
	}
	allow()
	eventually(t, "the class has its status", func() bool { return conditionOf(g, "demo", "ControllerInstalled") != "" })
	eventually(t, "the denial is not reported any more", func() bool { return !reported(m, "writing the status") })
}

// TestADeniedReportIsInTheSummary checks that the metrics, which show the summary of the Lease, have Degraded if the
// HostedControlPlane cannot be written to. Once that is allowed, the HostedControlPlane has its conditions, without a
// word about the denial.
func TestADeniedReportIsInTheSummary(t *testing.T) {
	address := freeport.Address(t)
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	var denied atomic.Int64
	allow := denyStatuses(m, "hypershift.openshift.io", hcps, &denied)
	run(t, m, g, func(o *controller.Options) { o.MetricsAddress = address })
	shows := func(line string) func() bool {
		return func() bool { return strings.Contains(ask(t, "http://"+address+"/metrics"), "\n"+line) }
	}
	eventually(t, "Degraded is True", shows(`hypergate_condition{status="True",type="Degraded"} 1`))
	eventually(t, "its reason is there", shows(`hypergate_condition_reason{reason="Forbidden",type="Degraded"} 1`))
	allow()
	eventually(t, "the HostedControlPlane has its conditions", func() bool { return reported(m, "AsExpected") })
	if reported(m, "writing conditions") {
		t.Error("the HostedControlPlane reports that it cannot be written to")
	}
	eventually(t, "Degraded is False", shows(`hypergate_condition{status="False",type="Degraded"} 1`))
}
