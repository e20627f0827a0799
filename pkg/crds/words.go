package crds

import (
	"fmt"
	"slices"
	"strings"
)

// CRD is one CRD with what is known, what was decided, and what we would put there.
type CRD struct {
	Name string
	Fact
	Decision
	Wanted Wanted
}

// Explain is the decision in words, for people; it names what it is about, but not the CRD.
func (c CRD) Explain() string {
	reason := c.words().reason
	if reason == "" {
		reason = string(c.Reason)
	}
	if c.Definition.State == Rejected {
		reason += "; it is not served: " + c.Definition.Why
	}
	if c.Definition.Converts == ConvertsByWebhook {
		reason += "; a webhook converts its objects, and where that does not answer, none can be read"
	}
	return reason
}

// NextStep is what a person can do about it, as a command where there is one; empty when there is nothing to do.
func (c CRD) NextStep() string {
	step := c.words().nextStep
	if step == "" && c.Definition.State == Rejected {
		step = "take the names that it shares from the other CRD: kubectl get crd " + c.Name + " -o yaml, at status.conditions"
	}
	return step
}

// whoNames is what names the objects that use fields.
func (c CRD) whoNames() string {
	if c.Owner.Kind == Ours {
		return "hypergate crds names them"
	}
	return "hypergate crds --dry-run adopt names them"
}

// words are a decision for people.
type words struct{ reason, nextStep string }

func (c CRD) words() words {
	return map[Reason]words{
		IsAbsent:             {reason: "not installed"},
		IsOurs:               {reason: "managed by hypergate"},
		IsDeleted:            {reason: "being deleted, and installed anew when it is gone"},
		HasConsent:           {reason: "taken over from " + c.Owner.String() + ", with consent"},
		HasNoOwner:           {reason: "taken over from " + c.Owner.String()},
		IsIdentical:          {reason: "installed by " + c.Owner.String() + ", and the same"},
		IsOLMs:               {reason: "managed by " + c.Owner.String()},
		IsReleased:           {reason: "left alone, as its annotation " + ManageAnnotation + " says"},
		IsUnmanaged:          {reason: "left alone in mode " + string(Unmanaged)},
		IsUnread:             {reason: "left alone until it was read"},
		LooksForUse:          {reason: "left alone until it is known whether an object uses " + few(c.Difference.Lost)},
		IsUnknown:            {"left alone: it could not be found out " + c.Owner.Name, c.findOwner()},
		HasInvalidAnnotation: {"left alone, because its annotation " + ManageAnnotation + " says neither true nor false", c.annotate("true") + " (or =false)"},
		IsUnreadable: {
			"left alone, because it cannot be read: " + c.Why, "kubectl get crd " + c.Name + " -o yaml",
		},
		NeedsConsent: {
			"installed by " + c.Owner.String() + ", and another one: " + c.Difference.String(), c.annotate("true"),
		},
		WouldDowngrade: {
			fmt.Sprintf("it claims to be %s, which is newer than %s: %s", c.Metadata.Version, c.Wanted.Version, c.Difference.String()), c.stayWithIt(),
		},
		MightDowngrade: {
			"it may be a newer one, and " + c.claim() + ": " + c.Difference.String(),
			fmt.Sprintf("if it is an older one, say so: kubectl annotate --overwrite crd %s %s=<version>; %s", c.Name, versionAnnotation(c.Name), c.stayWithIt()),
		},
		IsExperimental: {
			"the " + c.Metadata.Channel + " channel was installed over ours: " + c.Difference.String(),
			"to go back to the " + c.Wanted.Channel + " channel: " + c.annotate("true") + "; " + c.stayWithIt(),
		},
		IsIncompatible: {
			"the API server would refuse ours: " + strings.Join(c.Difference.Fixed, "; "),
			"if nobody needs it, delete it with all of its objects, and hypergate installs its own; " + c.stayWithIt(),
		},
		WouldLoseVersions: {
			"objects may be stored in versions that ours does not have: " + strings.Join(c.Difference.Unkept, ", "),
			"migrate the stored objects, and take those versions out of status.storedVersions",
		},
		WouldLoseFields: {
			"objects use fields that ours does not have: " + few(c.Difference.Lost),
			"take those fields out of the objects (" + c.whoNames() + ")",
		},
	}[c.Reason]
}

func (c CRD) annotate(consent string) string {
	return "kubectl annotate --overwrite crd " + c.Name + " " + ManageAnnotation + "=" + consent
}

func (c CRD) stayWithIt() string { return "to stay with it: " + c.annotate("false") }

// claim is what it says of its version, where that cannot be compared.
func (c CRD) claim() string {
	if c.Metadata.Version == "" {
		return "claims no version"
	}
	return fmt.Sprintf("claims the version %q", c.Metadata.Version)
}

// findOwner is how the owner can be found out.
func (c CRD) findOwner() string {
	if c.Metadata.OLM == Nameless {
		return "if none of OLM's operators needs it any more: kubectl label crd " + c.Name + " " + olmManaged + "-"
	}
	return "let hypergate list OLM's Subscriptions, InstallPlans and ClusterServiceVersions"
}

// fewFields is how many fields a text names.
const fewFields = 3

// String is a difference in words: how many fields, and the first of them.
func (d Difference) String() string {
	var parts []string
	for _, part := range []struct {
		what   string
		fields []Field
	}{{"has, and ours not: ", d.Lost}, {"lacks: ", d.Gained}, {"has with other rules: ", d.Changed}} {
		if len(part.fields) > 0 {
			parts = append(parts, part.what+few(part.fields))
		}
	}
	if len(d.Other) > 0 {
		parts = append(parts, "differs in "+strings.Join(d.Other, " and in "))
	}
	if len(d.Unkept) > 0 {
		parts = append(parts, "may store objects in "+strings.Join(d.Unkept, ", "))
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

// few names the first fields.
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
