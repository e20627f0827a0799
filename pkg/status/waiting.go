package status

import (
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// Waiting is what an installation waits for. Only the functions below make one. The zero value is nothing.
type Waiting struct{ text string }

// String returns what is waited for, as the object of "waiting for".
func (w Waiting) String() string { return w.text }

// WaitingForEndpoint returns what an installation waits for until it is known where istiod is published.
func WaitingForEndpoint(pending publish.EndpointPending) Waiting { return Waiting{pending.Why} }

// WaitingForCapability returns what an installation waits for in a cluster that has disabled a capability.
func WaitingForCapability(name string) Waiting {
	return Waiting{"the capability " + name + ", which is disabled in this cluster"}
}

// WaitingUntilEnabled returns what an installation waits for while hypergate installs nothing because of its flags.
func WaitingUntilEnabled() Waiting {
	return Waiting{"hypergate to be enabled for this cluster (" + string(model.SideMgmt) + " side)"}
}

// WaitingForToken returns what an installation waits for if istiod gets no token in the guest. The text stays the
// same from try to try.
func WaitingForToken(err error) Waiting {
	cause := apply.Classify(err, "create", tokens())
	return Waiting{"a token for istiod's service account in the guest (" + onSide(model.SideGuest, cause) + ")"}
}

// WaitingForLongerToken returns what an installation waits for if the guest grants tokens that are valid only for
// granted, and istiod needs them for shortest.
func WaitingForLongerToken(granted, shortest time.Duration) Waiting {
	return Waiting{fmt.Sprintf("a longer token for istiod's service account (guest side: it grants tokens of only %s; "+
		"hypergate needs at least %s)", granted.Round(time.Second), shortest)}
}

// WaitingForWebhook returns what an installation waits for until the webhook probe succeeds. err is the error of the
// last probe. It is nil if the webhook did not reject the test object. url is where the guest calls it. Empty: at its
// Service.
func WaitingForWebhook(url string, err error) Waiting {
	at, why := "", "a test object was accepted"
	if url != "" {
		at = " at " + url
	}
	if err != nil {
		why = onSide(model.SideGuest, apply.Classify(err, "create", webhookProbes()))
	}
	return Waiting{"the guest's kube-apiserver to reach istiod's validating webhook" + at +
		"; failurePolicy stays Ignore until then (" + why + ")"}
}

// waitsFor returns what an installation waits for, as the object of "waiting for".
func (r Result) waitsFor() string {
	switch {
	case r.Waiting != Waiting{}:
		return plain(r.Waiting.text)
	case r.Istiod != model.Available:
		return "istiod to become available"
	case r.Mgmt.Count(apply.VerdictWaiting)+r.Guest.Count(apply.VerdictWaiting) > 0:
		return "objects that are being deleted"
	default:
		return "objects that have not been applied yet"
	}
}
