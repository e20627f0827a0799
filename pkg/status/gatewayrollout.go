package status

import (
	"fmt"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/rollout"
)

// Reasons about a rollout of gateways: their pods get the proxies of another istiod.
const (
	// ReasonGatewayRollout: gateways roll one after another.
	ReasonGatewayRollout = "GatewayRollout"
	// ReasonGatewayRolloutStuck: the new pods of a Gateway do not become ready, or the guest denies its release. The
	// remaining Gateways wait.
	ReasonGatewayRolloutStuck = "GatewayRolloutStuck"
	// ReasonGatewayRolloutForbidden: hypergate is not allowed to hold or release Gateways.
	ReasonGatewayRolloutForbidden = "GatewayRolloutForbidden"
	// ReasonGatewayDefaultsRefused: the guest does not accept the defaults of a class. The gateways of this class keep
	// the defaults that they have, and gateways roll without them.
	ReasonGatewayDefaultsRefused = "GatewayDefaultsRefused"
)

// rollsAllAtOnce is the next step that gives up on a rollout of one Gateway after another.
const rollsAllAtOnce = "hypergate release lets all remaining Gateways roll at once"

// gatewayRollout returns what a rollout of gateways does or waits for. It returns an empty string if there is no
// rollout, or if it stopped.
func (r Result) gatewayRollout() string {
	changes, begins := "istiod changes", "istiod is being replaced"
	if r.GatewayRollout.Defaults {
		changes, begins = "the defaults of GatewayClasses change", "the defaults of GatewayClasses are being changed"
	}
	waits := "holding Gateways before " + changes + ", so that they roll one by one"
	switch s := r.GatewayRollout.Step.(type) {
	case rollout.Look:
		if s.Before {
			return waits
		}
	case rollout.Hold:
		return waits + notHeld(s)
	case rollout.Change:
		if s.Limit != rollout.NoLimit {
			return begins + ", and " + allAtOnce(s.Limit)
		}
	case rollout.Release:
		return rolled(s.Progress) + "; the next one is " + gatewayName(s.Gateway)
	case rollout.ReleaseAll:
		return fmt.Sprintf("%d Gateways are being released, and roll at once", len(s.Gateways))
	case rollout.Wait:
		switch {
		case s.AfterOutage:
			return rolled(s.Progress) + "; the next one follows two minutes after the end of an outage of the guest's API server"
		case s.Gateway.Key.Name == "":
			return rolled(s.Progress)
		}
		return rolled(s.Progress) + fmt.Sprintf("; waiting up to %.0f minutes for the new pods of ", rollout.ReadyTime.Minutes()) +
			gatewayName(s.Gateway) + nextStep("to see them, run kubectl "+ofGateway("get", s.Gateway)+" in the guest")
	}
	return ""
}

// notHeld returns how many Gateways are held, and what to do if the guest denies it.
func notHeld(s rollout.Hold) string {
	text := fmt.Sprintf(": %d of %d are held", max(0, s.Progress.Total-len(s.Gateways)), s.Progress.Total)
	if s.Cause == "" {
		return text
	}
	return text + "; Gateway " + gatewayName(s.Denied) + " cannot be held: " + plain(s.Cause) +
		nextStep("in the guest, let hypergate set the annotation "+model.HoldAnnotation+
			"; otherwise, the Gateways that are not held roll at once after two minutes")
}

// rolled returns the progress of a rollout.
func rolled(p rollout.Progress) string {
	return fmt.Sprintf("gateways roll one by one: %d of %d Gateways have rolled", p.Rolled, p.Total)
}

func gatewayName(g model.Gateway) string { return plain(g.Key.String()) }

// ofGateway returns the arguments of a kubectl command about the Deployment and the pods of a Gateway.
func ofGateway(verb string, g model.Gateway) string {
	return "-n " + argument(g.Key.Namespace) + " " + verb + " deployments,pods -l gateway.networking.k8s.io/gateway-name=" +
		argument(g.Key.Name)
}

// argument returns a name of the guest for a command that a person copies. A name that kube-apiserver would not accept
// could end the command and begin another one.
func argument(name string) string {
	if model.IsName(name) {
		return name
	}
	return "<name>"
}

// allAtOnce returns why Gateways roll all at once.
func allAtOnce(limit rollout.Limit) string {
	text := "all Gateways roll at once: "
	switch limit {
	case rollout.NotAllowed:
		return text + "hypergate is not allowed to hold them"
	case rollout.TooMany:
		return text + fmt.Sprintf("there are more than %d, or they are larger than hypergate reads", model.MaxGateways)
	case rollout.NotInTime:
		return "the Gateways that are not held roll at once: not all of them could be held in time"
	default:
		return text + plain(string(limit))
	}
}

// gatewayProblems returns the problems of a rollout of gateways.
func (r Result) gatewayProblems() []problem {
	var out []problem
	if s, stopped := r.GatewayRollout.Step.(rollout.Stop); stopped {
		out = append(out, stoppedRollout(s))
	}
	if r.GatewayRollout.Limit == rollout.NotAllowed {
		out = append(out, problem{
			reason: ReasonGatewayRolloutForbidden,
			text: "rolling gateways: " + allAtOnce(rollout.NotAllowed) + " (guest side)" +
				nextStep(applyGuestRoles+", or set hypergate's flag --gateway-rollout=AllAtOnce"),
		})
	}
	if refused := r.GatewayRollout.Refused; len(refused) > 0 {
		out = append(out, refusedDefaults(refused[0], len(refused)-1))
	}
	return out
}

// withGatewayProblems returns the text about other failures, followed by the problems of a rollout of gateways.
func (r Result) withGatewayProblems(failures string) string {
	if problems := r.gatewayProblems(); len(problems) > 0 {
		return failures + "; " + joinTexts(problems)
	}
	return failures
}

// refusedDefaults returns the problem with the defaults of a class. more is how many other classes have it, too.
func refusedDefaults(class string, more int) problem {
	selector := model.ClassDefaultsLabel + "=" + argument(class)
	text := "rolling gateways: the guest has not accepted the new defaults of GatewayClass " + plain(class)
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return problem{
		reason: ReasonGatewayDefaultsRefused,
		text: text + " for two minutes; its gateways keep the defaults that they have, and rollouts of gateways do not wait for it" +
			nextStep("in the guest, let hypergate write the ConfigMap that kubectl get configmaps -A -l "+selector+
				" shows; then the gateways of this class roll, too"),
	}
}

// gatewayRolloutPublic returns what a GatewayClass says about a rollout of gateways. It returns an empty string if
// there is nothing to say. Each change of a GatewayClass's status makes istiod look at all of its Gateways again, so
// the progress is only on the HostedControlPlane.
func (r Result) gatewayRolloutPublic() string {
	problems := r.gatewayProblems()
	switch {
	case len(problems) > 0:
		return joinTexts(problems)
	case r.gatewayRollout() != "":
		return "gateways are being rolled, so that they get this version and the defaults of their class"
	default:
		return ""
	}
}

func stoppedRollout(s rollout.Stop) problem {
	switch s.Why {
	case rollout.ReleaseDenied:
		return problem{
			reason: ReasonGatewayRolloutStuck,
			text: "rolling gateways: Gateway " + gatewayName(s.Gateway) + " cannot be released, and keeps its pods: " + plain(s.Cause) +
				nextStep("in the guest, allow hypergate to remove the annotation "+model.HoldAnnotation+
					", or remove it with kubectl annotate gateway -n "+argument(s.Gateway.Key.Namespace)+" "+argument(s.Gateway.Key.Name)+
					" "+model.HoldAnnotation+"-"),
		}
	case rollout.HeldAgain:
		return problem{
			reason: ReasonGatewayRolloutStuck,
			text: "rolling gateways: Gateway " + gatewayName(s.Gateway) + " keeps its pods: another client in the guest sets the " +
				"annotation " + model.HoldAnnotation + " again after each release" +
				nextStep("in the guest, find the client with kubectl get gateway -n "+argument(s.Gateway.Key.Namespace)+" "+
					argument(s.Gateway.Key.Name)+" -o yaml --show-managed-fields, and remove the annotation from what it applies"),
		}
	case rollout.MayNotRelease:
		return problem{
			reason: ReasonGatewayRolloutForbidden,
			text: "rolling gateways: Gateways are held, and hypergate is not allowed to release them (guest side)" +
				nextStep(applyGuestRoles+"; "+
					"hypergate release, with a kubeconfig of the guest's admin, releases them"),
		}
	case rollout.PodsNotReady:
	}
	d := s.Gateway.Deployment
	return problem{
		reason: ReasonGatewayRolloutStuck,
		text: fmt.Sprintf("rolling gateways: the new pods of Gateway %s are not becoming ready (%d of %d); %d of %d Gateways have rolled, "+
			"and the others keep their pods", gatewayName(s.Gateway), d.Ready, d.Wanted, s.Progress.Rolled, s.Progress.Total) +
			nextStep("in the guest, find the cause with kubectl "+ofGateway("describe", s.Gateway)+
				", and repair or delete this Gateway; "+rollsAllAtOnce),
	}
}
