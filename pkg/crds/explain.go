package crds

import (
	"fmt"
	"slices"
	"strings"
)

// CRD is one CRD with its observed facts, the decision about it, and what hypergate would install.
type CRD struct {
	Name string
	Fact
	Decision
	Wanted Wanted
}

// Explain returns the reason of the decision as a sentence for people. The sentence does not name the CRD.
func (c CRD) Explain() string {
	reason := c.explanation().reason
	if reason == "" {
		reason = string(c.Reason)
	}
	if c.Definition.State == Rejected {
		reason += "; the API server does not serve it: " + c.Definition.Why
	}
	if c.Definition.Converts == ConvertsByWebhook {
		reason += "; a webhook converts its objects, which cannot be read while the webhook does not answer"
	}
	return reason
}

// NextStep returns what an administrator can do, as a command where there is one. It returns an empty string if no
// action is required.
func (c CRD) NextStep() string {
	step := c.explanation().nextStep
	if step == "" && c.Definition.State == Rejected {
		step = "resolve the name conflict with the other CRD, which status.conditions shows: kubectl get crd " + c.Name + " -o yaml"
	}
	return step
}

// listCommand returns the command that lists the objects that use fields which hypergate's CRD does not have.
func (c CRD) listCommand() string {
	if c.Owner.Kind == Ours {
		return "hypergate crds"
	}
	return "hypergate crds --dry-run adopt"
}

// explanation is the reason of a decision and the next step, for people.
type explanation struct{ reason, nextStep string }

func (c CRD) explanation() explanation {
	owner, difference := c.Owner.String(), c.Difference.String()
	return map[Reason]explanation{
		IsAbsent:     {reason: "not installed"},
		IsOurs:       {reason: "managed by hypergate"},
		IsDeleted:    {reason: "being deleted; hypergate installs it again when it is gone"},
		HasConsent:   {reason: "taken over from " + owner + ", with consent"},
		HasNoOwner:   {reason: "taken over from " + owner},
		IsIdentical:  {reason: "installed by " + owner + ", with the same content as hypergate's CRD"},
		IsOLMs:       {reason: "managed by " + owner},
		IsReleased:   {reason: "left unchanged, because its annotation " + ManageAnnotation + " is false"},
		IsUnmanaged:  {reason: "not managed in mode " + string(Unmanaged)},
		IsLeftAbsent: {reason: "not installed, because the guest's ingress operator manages these CRDs, and does not have this one"},
		IsUnread:     {reason: "left unchanged until it has been read"},
		LooksForUse:  {reason: "left unchanged until it is known whether objects use " + few(c.Difference.Lost)},
		IsUnknown:    {"left unchanged, because it is unknown " + c.Owner.Name, c.findOwner()},
		IsUnreadable: {"left unchanged, because it cannot be read: " + c.Why, "kubectl get crd " + c.Name + " -o yaml"},
		HasInvalidAnnotation: {
			"left unchanged, because its annotation " + ManageAnnotation + " is neither true nor false",
			c.annotate("true") + " (or =false)",
		},
		IsLater: {
			reason: fmt.Sprintf("written by hypergate, in version %s, which is newer than this hypergate's %s",
				c.Metadata.Version, c.Wanted.Version),
		},
		NeedsConsent: {
			"installed by " + owner + ", and differs from hypergate's CRD, so that a takeover needs consent: " + difference,
			c.annotate("true"),
		},
		WouldDowngrade: {
			fmt.Sprintf("it claims version %s, which is newer than hypergate's %s: %s", c.Metadata.Version, c.Wanted.Version, difference),
			c.keepIt(),
		},
		MightDowngrade: {
			"it can be newer than hypergate's CRD, because it " + c.claim() + ": " + difference,
			fmt.Sprintf("if it is older, set its version: kubectl annotate --overwrite crd %s %s=<version>; %s",
				c.Name, versionAnnotation(c.Name), c.keepIt()),
		},
		IsExperimental: {
			"the " + c.Metadata.Channel + " channel was installed over hypergate's CRD: " + difference,
			"to return to the " + c.Wanted.Channel + " channel: " + c.annotate("true") + "; " + c.keepIt(),
		},
		IsIncompatible: {
			"the API server would reject an update to hypergate's CRD: " + strings.Join(c.Difference.Fixed, "; "),
			"if it is not needed, delete it with all of its objects, and hypergate installs its own; " + c.keepIt(),
		},
		WouldLoseVersions: {
			"objects can be stored in versions that hypergate's CRD does not have: " + strings.Join(c.Difference.Unkept, ", "),
			"migrate the stored objects, and remove those versions from status.storedVersions",
		},
		WouldLoseFields: {
			"objects use fields that hypergate's CRD does not have: " + few(c.Difference.Lost),
			"remove those fields from the objects (" + c.listCommand() + " lists them)",
		},
	}[c.Reason]
}

func (c CRD) annotate(consent string) string {
	return "kubectl annotate --overwrite crd " + c.Name + " " + ManageAnnotation + "=" + consent
}

func (c CRD) keepIt() string { return "to keep it as it is: " + c.annotate("false") }

// claim returns what the CRD says about its version, if that cannot be compared.
func (c CRD) claim() string {
	if c.Metadata.Version == "" {
		return "claims no version"
	}
	return fmt.Sprintf("claims the version %q", c.Metadata.Version)
}

// findOwner returns how the owner of the CRD can be determined.
func (c CRD) findOwner() string {
	if c.Metadata.OLM == Nameless {
		return "if no OLM operator needs it any more: kubectl label crd " + c.Name + " " + olmManaged + "-"
	}
	return "allow hypergate to list OLM's Subscriptions, InstallPlans and ClusterServiceVersions"
}

// fewFields is how many fields a text names.
const fewFields = 3

// String returns the difference as a sentence: the first fields of each kind, and how many more there are.
func (d Difference) String() string {
	var parts []string
	for _, part := range []struct {
		what   string
		fields []Field
	}{{"also has: ", d.Lost}, {"lacks: ", d.Gained}, {"has other rules for: ", d.Changed}} {
		if len(part.fields) > 0 {
			parts = append(parts, part.what+few(part.fields))
		}
	}
	if len(d.Other) > 0 {
		parts = append(parts, "differs in "+strings.Join(d.Other, " and in "))
	}
	if len(d.Unkept) > 0 {
		parts = append(parts, "can have objects stored in "+strings.Join(d.Unkept, ", "))
	}
	all := slices.Clone(d.Fixed)
	if len(parts) > 0 {
		all = append(all, "it "+strings.Join(parts, "; it "))
	}
	if len(all) == 0 {
		return "no difference"
	}
	return strings.Join(all, "; ")
}

// few returns the first fields as a list, and how many more there are.
func few(fields []Field) string {
	var names []string
	for _, f := range fields[:min(len(fields), fewFields)] {
		names = append(names, f.String())
	}
	if more := len(fields) - fewFields; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
