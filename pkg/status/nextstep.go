package status

import (
	"cmp"
	"errors"
	"strings"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
)

// solvable is an error with a next step of its own.
type solvable interface {
	error
	NextStep() string
}

// ownStep returns the text about an error without the next step at its end, and this step in brackets. An error without
// a next step of its own has the usual step.
func ownStep(err error, about, usual string) (text, step string) {
	own, is := errors.AsType[solvable](err)
	if !is {
		return about, usual
	}
	step = plain(own.NextStep())
	return strings.TrimSuffix(about, ": "+step), nextStep(step)
}

// sided is an error of a request to one side.
type sided interface {
	error
	OnSide() model.Side
}

// sideOf returns the side of a request that failed. An error that does not have one is of the usual side.
func sideOf(err error, usual model.Side) model.Side {
	if of, is := errors.AsType[sided](err); is {
		return of.OnSide()
	}
	return usual
}

// nextStepFor returns what to do about a cause of a class on a side, in brackets.
func nextStepFor(side model.Side, class apply.ErrorClass) string {
	if step := stepFor(side, class); step != "" {
		return nextStep(step)
	}
	return ""
}

// stepFor returns what to do about a cause of a class on a side. It returns an empty string if no action is required.
func stepFor(side model.Side, class apply.ErrorClass) string {
	// guest is empty if the step is the same on both sides.
	step, known := map[apply.ErrorClass]struct{ mgmt, guest string }{
		apply.Unreachable: {
			"check that the management cluster's API server answers",
			"check that the guest's kube-apiserver is running, and that pods in this namespace can reach it " +
				"at the address in the guest kubeconfig",
		},
		apply.Unauthorized: {
			"check that hypergate's service account exists",
			"store a kubeconfig that the guest accepts in its Secret, for example with hypergate guest-kubeconfig --apply",
		},
		apply.Forbidden: {
			"grant this permission to hypergate's service account (roles in deploy/rbac)",
			"grant this permission to hypergate's user in the guest (" + applyGuestRoles + ")",
		},
		apply.Denied:           {mgmt: "allow this request in the admission webhook or policy, or correct what it was denied for"},
		apply.Conflict:         {mgmt: "if the object is not needed, delete it, and hypergate creates its own"},
		apply.NamespaceMissing: {mgmt: "create the namespace"},
		apply.NamespaceTerminating: {
			mgmt: "wait until the namespace is deleted; if it remains, its status names what prevents its deletion",
		},
		apply.NotServed: {mgmt: "install the API of this kind, or remove the setting that needs it"},
		apply.DeletionBlocked: {
			mgmt: "remove its finalizers if no other client needs them; a namespace waits for what it contains, and a workload " +
				"for its pods",
		},
		apply.Refused: {
			mgmt: "report this as a defect of hypergate, with the archive that hypergate bundle writes",
		},
		apply.Enlarged: {
			mgmt: "find the mutating webhook that adds to hypergate's objects and requests, and exempt them from it; without one, " +
				"check that no APIService replaces this API by another server",
		},
		apply.Oversized: {mgmt: "reduce the number or the size of the objects; hypergate tries again within 5 minutes"},
	}[class]
	switch {
	case !known && class.IsTransient():
		return ""
	case !known:
		return "correct what this message names; if that does not help, report it as a defect of hypergate, with the archive that " +
			"hypergate bundle writes"
	case side == model.SideGuest:
		return cmp.Or(step.guest, step.mgmt)
	default:
		return step.mgmt
	}
}

// applyGuestRoles is how hypergate gets its permissions in the guest. The folders of a standalone cluster are bases:
// they would replace the images of a running hypergate. deploy/hosted/guest has no images.
const applyGuestRoles = "apply deploy/hosted/guest in the guest, or your overlay of deploy/standalone or " +
	"deploy/standalone-own-namespace, or upgrade the Helm release"

func nextStep(text string) string { return " [" + text + "]" }

// beforeStep returns a message with a text before the next step at its end, so that the next step remains the end.
func beforeStep(message, text string) string {
	at := strings.LastIndex(message, " [")
	if at < 0 || !strings.HasSuffix(message, "]") {
		return message + text
	}
	return message[:at] + text + message[at:]
}
