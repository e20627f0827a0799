package desired

import (
	"fmt"
	"strings"

	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// InsecureSettings are the settings that are allowed and weaken a rule of docs/security.md, or make istiod easier to reach or to misuse than it need be.
// Each is a sentence that begins with its flag. They are for whoever runs hypergate: the guest is told no more than that there are some, because
// they say what to try. Standalone there is no boundary between two sides to weaken.
func InsecureSettings(c model.Config) []string {
	var out []string
	add := func(weak bool, format string, args ...any) {
		if weak {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(c.CRDProtection == model.LeaveCRDsOpen, "--protect-crds=false: any manifest or cleanup of the guest's can change or delete the CRDs that hypergate manages, "+
		"and with a CRD go all objects of its kind")
	if c.Topology != model.TopologyHosted {
		return out
	}
	add(len(c.MgmtNamespace) < leakcheck.ShortestName, "--namespace=%s: a name of less than %d characters may be part of any word, and is not looked for in what is written to the guest",
		c.MgmtNamespace, leakcheck.ShortestName)
	add(leakcheck.ContainsWord(c.WebhookHost, c.MgmtNamespace), "--webhook-host=%s: the guest reads the name of the management namespace in the URL of its webhook", c.WebhookHost)
	own := c.WebhookHost == c.WebhookService() || strings.HasPrefix(c.WebhookHost, c.WebhookService()+".")
	add(!own, "--webhook-host=%s: this is no name of the Service %s; where it begins like the name of a Service of the namespace that lacks the label %s, "+
		"HyperShift deletes the webhook", c.WebhookHost, c.WebhookService(), allowGuestWebhooks)
	peers, fenced := c.NetworkPolicyPeers()
	add(!fenced, "--network-policies=false: unless other policies stand around istiod's pod, any pod of the management cluster can try its ports, "+
		"and a guest can make istiod dial any address that the management network leads to")
	for _, use := range usesOf(peers) {
		for _, p := range use.peers {
			block, is := p.(model.BlockPeer)
			add(is && block.Prefix.Bits() == 0, "--%s=%s: that is every address", use.flag, p)
		}
	}
	return out
}
