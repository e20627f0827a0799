package adversary_test

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/test/adversary"
	"github.com/hypergate/hypergate/test/freeport"
	"github.com/hypergate/hypergate/test/hang"
)

// TestAClusterThatIsAwayIsOneLine checks that all watches of a cluster log one line if its API server does not answer.
func TestAClusterThatIsAwayIsOneLine(t *testing.T) {
	t.Parallel()
	g := hang.Gomega(t)
	log := run(t, adversary.Mgmt(t, mgmtNS), adversary.Guest(t), func(o *controller.Options) {
		o.MgmtConfig, o.GuestConfig = rest.CopyConfig(o.MgmtConfig), rest.CopyConfig(o.GuestConfig)
		o.MgmtConfig.Host, o.GuestConfig.Host = "https://"+freeport.Address(t), "https://"+freeport.Address(t)
		o.LoadGuest = func() (*rest.Config, error) { return rest.CopyConfig(o.GuestConfig), nil }
	})
	lines := func(cluster, level, message string) (n int) {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, " cluster="+cluster+" ") && strings.Contains(line, "level="+level+" ") &&
				strings.Contains(line, message) {
				n++
			}
		}
		return n
	}
	for cluster, least := range map[string]int{"management": 8, "guest": 12} {
		g.Eventually(lines).WithArguments(cluster, "DEBUG+3", "A watch failed").Should(gomega.BeNumerically(">=", least))
		g.Expect(lines(cluster, "INFO", "The API server does not answer")).To(gomega.Equal(1), cluster)
		g.Expect(lines(cluster, "INFO", "A watch failed")).To(gomega.BeZero(), cluster)
	}
}
