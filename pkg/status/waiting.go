package status

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/desired"
)

// WaitingForToken is what an installation waits for whose istiod gets no token in the guest, in words that stay the same from try to try.
func WaitingForToken(err error) string {
	cause := apply.Classify(err, "create", schema.GroupResource{Resource: "serviceaccounts/token"})
	return "a token of istiod's service account in the guest (" + onSide(desired.SideGuest, cause) + ")"
}

// WaitingForLongerToken is what it waits for while the guest grants shorter ones than that.
func WaitingForLongerToken(life time.Duration) string {
	return fmt.Sprintf("a token of istiod's service account that lives longer than %s (guest side: it does not grant what was asked for)", life.Round(time.Second))
}

// WaitingForWebhook is what it waits for while its webhook was not seen to refuse anything. err is what the last try ended with, nil that nothing was refused.
func WaitingForWebhook(err error) string {
	why := "the guest's API server accepts what it would reject"
	if err != nil {
		why = onSide(desired.SideGuest, apply.Classify(err, "create", schema.GroupResource{Group: "networking.istio.io", Resource: "destinationrules"}))
	}
	return "its webhook to be seen rejecting an object, until when it is not enforced (" + why + ")"
}

func (r Result) waitsFor() string {
	switch {
	case r.Waiting != "":
		return plain(r.Waiting)
	case r.Istiod != desired.Available:
		return "istiod to become available"
	case r.Mgmt.Count(apply.VerdictWaiting)+r.Guest.Count(apply.VerdictWaiting) > 0:
		return "objects that are being deleted"
	default:
		return "objects that were not tried yet"
	}
}
