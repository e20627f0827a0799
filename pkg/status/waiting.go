package status

import (
	"fmt"
	"time"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// Waiting is what an installation waits for. Only the functions below make one. The zero value is nothing.
type Waiting struct {
	text string
	// refused means that the text is a whole sentence: nothing is installed, and that does not end by itself.
	refused bool
}

// String returns the sentence about it.
func (w Waiting) String() string {
	if w.refused {
		return w.text
	}
	return "waiting for " + w.text
}

// afterServing returns the end of a sentence that says that istiod serves.
func (w Waiting) afterServing() string {
	if w.refused {
		return "; " + plain(w.text)
	}
	return ", but it waits for " + plain(w.text)
}

// WaitingForEndpoint returns what an installation waits for until it is known where istiod is published.
func WaitingForEndpoint(pending publish.EndpointPending) Waiting { return Waiting{text: pending.Why} }

// WithoutCapability returns why nothing is installed in a cluster that has disabled a capability.
func WithoutCapability(name string) Waiting {
	return Waiting{text: "hypergate installs nothing, because the capability " + name + " is disabled in this cluster", refused: true}
}

// WaitingUntilEnabled returns what an installation waits for while hypergate installs nothing because of its flags.
func WaitingUntilEnabled() Waiting {
	return Waiting{text: "hypergate to be enabled for this cluster (" + string(model.SideMgmt) + " side)"}
}

// WaitingForToken returns what an installation waits for if istiod gets no token in the guest. The text stays the
// same from try to try.
func WaitingForToken(err error) Waiting {
	cause := apply.Classify(err, "create", tokens())
	return Waiting{text: "a token for istiod's service account in the guest (" + onSide(model.SideGuest, cause) + ")"}
}

// WaitingForLongerToken returns what an installation waits for if the guest grants tokens that are valid only for
// granted, and istiod needs them for shortest.
func WaitingForLongerToken(granted, shortest time.Duration) Waiting {
	return Waiting{text: fmt.Sprintf("a longer token for istiod's service account (guest side: it grants tokens of only %s; "+
		"hypergate needs at least %s)", granted.Round(time.Second), shortest)}
}

// WaitingForWebhook returns what an installation waits for until the webhook probe succeeds. err is the error of the
// last probe. It is nil if the webhook did not reject the test object. url is where the guest calls it. Empty: at its
// Service.
func WaitingForWebhook(url string, err error) Waiting {
	at, why := "", "the guest accepted the object"
	if url != "" {
		at = " at " + url
	}
	if err != nil {
		why = onSide(model.SideGuest, apply.Classify(err, "create", webhookProbes()))
	}
	return Waiting{text: "istiod's webhook" + at + " to reject hypergate's invalid test object; its failure policy stays Ignore " +
		"until it does (" + why + ")"}
}

// waits returns the sentence about what an installation waits for.
func (r Result) waits() string {
	switch {
	case r.Waiting != Waiting{}:
		return plain(r.Waiting.String())
	case r.Istiod != model.Available:
		return "waiting for istiod to become available"
	case r.Mgmt.Count(apply.VerdictWaiting)+r.Guest.Count(apply.VerdictWaiting) > 0:
		return "waiting for objects that are being deleted"
	default:
		return "waiting for objects that have not been applied yet"
	}
}
