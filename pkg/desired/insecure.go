package desired

import (
	"fmt"
	"strings"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// InsecureSettings returns the insecure settings: they are allowed, but they weaken a rule of docs/security.md, or make
// istiod easier to reach or to misuse than necessary. Each is a sentence that begins with its flag.
//
// The sentences are for the management side only, because they show an attacker what to try. The guest sees only that
// there are insecure settings. In a standalone cluster there is no boundary between two sides that a setting could
// weaken.
func InsecureSettings(c model.Config) []string {
	var out []string
	add := func(insecure bool, format string, args ...any) {
		if insecure {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(c.CRDProtection == model.LeaveCRDsOpen,
		"--protect-crds=false: any manifest or cleanup in the guest can change or delete the CRDs that hypergate manages; "+
			"deleting a CRD deletes all objects of its kind")
	if c.Topology != model.TopologyHosted {
		return out
	}
	add(len(c.MgmtNamespace) < leakcheck.ShortestName,
		"--namespace=%s: a name of fewer than %d characters can be part of any word, "+
			"so hypergate does not search for it in what it writes to the guest",
		c.MgmtNamespace, leakcheck.ShortestName)
	add(leakcheck.ContainsWord(c.WebhookHost, c.MgmtNamespace),
		"--webhook-host=%s: the guest can read the name of the management namespace in the URL of its webhook", c.WebhookHost)
	own := c.WebhookHost == c.WebhookService() || strings.HasPrefix(c.WebhookHost, c.WebhookService()+".")
	add(!own, "--webhook-host=%s: this is not a name of the Service %s; if it begins with the name of a Service in the namespace "+
		"without the label %s, HyperShift deletes the webhook", c.WebhookHost, c.WebhookService(), allowGuestWebhooks)
	peers, enabled := c.NetworkPolicyPeers()
	add(!enabled, "--network-policies=false: unless other policies restrict istiod's pod, "+
		"any pod of the management cluster can connect to its ports; "+
		"a guest can also make istiod connect to any address that the management network reaches")
	for _, list := range peerLists(c, peers) {
		for _, p := range list.peers {
			block, isBlock := p.(model.BlockPeer)
			add(isBlock && block.Prefix.Bits() == 0, "--%s=%s: this allows every address", list.flag, p)
		}
	}
	return out
}
