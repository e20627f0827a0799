package crds

import apiversion "k8s.io/apimachinery/pkg/util/version"

// Mode determines whether hypergate manages CRDs and the installation.
type Mode string

const (
	// Managed means that hypergate manages them.
	Managed Mode = "Managed"
	// Unmanaged means that another party manages them. hypergate removes istiod, its webhooks and the admission
	// policy, and leaves everything else unchanged.
	Unmanaged Mode = "Unmanaged"
)

// Policy is the policy for all CRDs, from the flags and the guest's configuration.
type Policy struct {
	Mode Mode
	// Consent applies to CRDs without their own annotation.
	Consent Consent
	// LeaveAbsent leaves a CRD absent without this consent: the guest's ingress operator manages the CRDs of its group.
	LeaveAbsent bool
}

// Wanted is the version and channel of the CRD that hypergate would install. Istio's CRDs have no channel.
type Wanted struct{ Version, Channel string }

// Fact is everything that is known about one CRD in the guest. The zero Fact means that the CRD does not exist.
type Fact struct {
	Owner    Owner
	Metadata Metadata
	// Content is how much is known about the content of the CRD. Definition and Difference (between the installed and
	// the wanted CRD) are empty unless Content is Read.
	Content    Content
	Definition Definition
	Difference Difference
	// Why is the reason if Content is Unreadable.
	Why string
	// Use reports whether an object uses fields that would be lost according to Difference.
	Use Use
}

// Content is how much is known about the content of a CRD.
type Content int

const (
	// Unread means that the CRD was not read yet.
	Unread Content = iota
	// Unreadable means that the CRD could not be read.
	Unreadable
	// Read means that the content is known.
	Read
)

// Use is whether objects use fields that would be lost.
type Use int

const (
	// Unsearched means that no search took place yet.
	Unsearched Use = iota
	// Unused means that no object uses such a field.
	Unused
	// Used means that an object uses such a field.
	Used
)

// Verdict is what hypergate does with one CRD.
type Verdict string

const (
	// Install creates a CRD that does not exist.
	Install Verdict = "Install"
	// Update writes a CRD that hypergate owns, and that differs from the wanted CRD, or may differ.
	Update Verdict = "Update"
	// UpToDate applies a CRD that hypergate owns, and that is the wanted one. There is nothing to write, as long as no
	// other client changes it.
	UpToDate Verdict = "UpToDate"
	// Adopt takes over a CRD of another owner, with consent or because the owner is gone.
	Adopt Verdict = "Adopt"
	// Wait leaves the CRD alone until it is deleted. Its deletion is an event, and then it is installed again.
	Wait Verdict = "Wait"
	// Keep leaves the CRD alone, because this is the wanted state.
	Keep Verdict = "Keep"
	// Blocked leaves the CRD alone although this is not the wanted state. A person must decide.
	Blocked Verdict = "Blocked"
	// Undetermined leaves the CRD alone, because too little is known.
	Undetermined Verdict = "Undetermined"
)

// Applies reports whether hypergate applies the CRD. Applying a CRD that is up to date sends no request.
func (v Verdict) Applies() bool { return v == Install || v == Update || v == UpToDate || v == Adopt }

// IsProtected reports whether the admission policy protects the CRD from other clients, because hypergate owns it or
// will own it.
func (c CRD) IsProtected() bool {
	return c.Verdict.Applies() || c.Reason == IsLater || c.Owner.Kind == Ours && c.Reason == IsUnread
}

// Reason is the reason for a Verdict.
type Reason string

// Reasons. Each belongs to one or two verdicts; see Decide.
const (
	IsAbsent             Reason = "Absent"
	IsOurs               Reason = "Ours"
	IsDeleted            Reason = "BeingDeleted"
	HasConsent           Reason = "Consent"
	HasNoOwner           Reason = "OwnerGone"
	IsIdentical          Reason = "Identical"
	IsOLMs               Reason = "ManagedByOLM"
	IsLater              Reason = "LaterVersion"
	IsReleased           Reason = "Released"
	IsUnmanaged          Reason = "Unmanaged"
	IsLeftAbsent         Reason = "LeftAbsent"
	IsUnknown            Reason = "OwnerUnknown"
	IsUnread             Reason = "NotReadYet"
	IsUnreadable         Reason = "Unreadable"
	HasInvalidAnnotation Reason = "InvalidAnnotation"
	NeedsConsent         Reason = "NeedsConsent"
	WouldDowngrade       Reason = "WouldDowngrade"
	MightDowngrade       Reason = "MightDowngrade"
	IsExperimental       Reason = "ExperimentalChannel"
	IsIncompatible       Reason = "Incompatible"
	WouldLoseVersions    Reason = "StoredVersions"
	WouldLoseFields      Reason = "FieldsInUse"
	LooksForUse          Reason = "LookingForUse"
)

// Decision is a Verdict and its reason.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Reason  Reason  `json:"reason"`
}

// Decide returns the decision about one CRD. No other code decides whether a CRD is written. Decide errs on the side
// of leaving a CRD alone.
//
// Decide never lowers a version, never drops a stored version, and never removes a field that an object is known to
// use. It never writes a CRD with a live owner or an unknown owner.
func Decide(f Fact, w Wanted, p Policy) Decision {
	switch {
	case p.Mode != Managed && p.Mode != "": // an unknown mode does not justify a write
		return Decision{Keep, IsUnmanaged}
	case f.Owner.Kind == Unowned:
		return decideAbsent(p)
	case f.Owner.Kind == Unknown:
		return Decision{Undetermined, IsUnknown}
	case f.Metadata.Deletion == Terminating:
		return Decision{Wait, IsDeleted}
	}
	switch f.Metadata.Consent {
	case Refused:
		return Decision{Keep, IsReleased}
	case InvalidAnnotation:
		return Decision{Undetermined, HasInvalidAnnotation}
	case Unasked:
		return decideByOwner(f, w, p.Consent)
	default:
		return decideByOwner(f, w, f.Metadata.Consent)
	}
}

func decideAbsent(p Policy) Decision {
	if p.LeaveAbsent && p.Consent != Given {
		return Decision{Keep, IsLeftAbsent}
	}
	return Decision{Install, IsAbsent}
}

func decideByOwner(f Fact, w Wanted, consent Consent) Decision {
	switch f.Owner.Kind {
	case LiveOLM:
		return Decision{Keep, IsOLMs}
	case Ours:
		if f.isLaterVersion(w) {
			return Decision{Keep, IsLater}
		}
		return orUpToDate(decideOurs(f, w, consent), f, w)
	case OrphanedOLM, IngressOperator, ThirdParty:
		return decideOthers(f, w, consent)
	default:
		return Decision{Undetermined, IsUnknown}
	}
}

// decideOurs decides about a CRD that hypergate owns. It uses only the metadata if that is sufficient, so that
// changes are reverted before the CRD was read.
//
// A claim of a newer version or of another channel distinguishes a third-party upgrade from an accidental change.
func decideOurs(f Fact, w Wanted, consent Consent) Decision {
	update, claim := Decision{Update, IsOurs}, versionClaimOf(f.Metadata, w)
	switch decision, refused := refusedByServer(f); {
	case refused:
		return decision
	case claim != claimsNothing && f.Content != Read:
		return unread(f)
	case f.Content == Read && f.Difference.onlyAdds():
		return update // whatever the CRD claims: the wanted CRD has everything that it has
	case claim == claimsNewer:
		return Decision{Blocked, WouldDowngrade}
	case claim == claimsChannel && consent != Given:
		return Decision{Blocked, IsExperimental}
	case f.losesUsed():
		return Decision{Blocked, WouldLoseFields}
	case claim == claimsChannel:
		return decideLoss(f, w, update)
	default:
		return update
	}
}

// orUpToDate returns UpToDate instead of Update for a CRD that is the wanted one.
func orUpToDate(d Decision, f Fact, w Wanted) Decision {
	m := f.Metadata
	if d.Verdict == Update && f.Same() && m.Version == w.Version && (w.Channel == "" || m.Channel == w.Channel) {
		d.Verdict = UpToDate
	}
	return d
}

// versionClaim is what an owned CRD claims to be now.
type versionClaim int

const (
	claimsNothing versionClaim = iota
	claimsNewer
	claimsChannel
)

func versionClaimOf(m Metadata, w Wanted) versionClaim {
	switch {
	case compareVersions(m.Version, w.Version) == newer:
		return claimsNewer
	case w.Channel != "" && m.Channel != "" && m.Channel != w.Channel:
		return claimsChannel
	default:
		return claimsNothing
	}
}

// decideOthers decides about a CRD whose owner cannot be asked or is gone.
func decideOthers(f Fact, w Wanted, consent Consent) Decision {
	switch {
	case f.Content != Read:
		return unread(f)
	case f.Owner.Kind == OrphanedOLM:
		return decideLoss(f, w, Decision{Adopt, HasNoOwner})
	case consent == Given:
		return decideLoss(f, w, Decision{Adopt, HasConsent})
	case f.Same():
		return Decision{Keep, IsIdentical}
	default:
		return Decision{Blocked, NeedsConsent}
	}
}

// decideLoss returns the decision to write if the write loses nothing. Otherwise it returns why it does not.
func decideLoss(f Fact, w Wanted, write Decision) Decision {
	claim := compareVersions(f.Metadata.Version, w.Version)
	switch decision, refused := refusedByServer(f); {
	case refused:
		return decision
	case f.Difference.onlyAdds():
		return write // whatever the CRD claims: the wanted CRD has everything that it has
	case claim == newer:
		return Decision{Blocked, WouldDowngrade}
	case len(f.Difference.Lost) == 0:
		return write
	case claim == unclear:
		return Decision{Blocked, MightDowngrade}
	case f.losesUsed():
		return Decision{Blocked, WouldLoseFields}
	case f.Use == Unsearched:
		return Decision{Undetermined, LooksForUse}
	default:
		return write
	}
}

// refusedByServer reports whether the API server would refuse to replace the installed CRD by the wanted one.
func refusedByServer(f Fact) (Decision, bool) {
	switch {
	case len(f.Difference.Fixed) > 0:
		return Decision{Blocked, IsIncompatible}, true
	case len(f.Difference.Unkept) > 0:
		return Decision{Blocked, WouldLoseVersions}, true
	default:
		return Decision{}, false
	}
}

// unread returns the decision to leave the CRD alone until its content is known.
func unread(f Fact) Decision {
	if f.Content == Unreadable {
		return Decision{Undetermined, IsUnreadable}
	}
	return Decision{Undetermined, IsUnread}
}

// Same reports whether the installed CRD and the wanted CRD are the same for every client.
func (f Fact) Same() bool {
	return f.Content == Read && f.Difference.None() && len(f.Difference.Unkept) == 0
}

// isLaterVersion reports whether hypergate wrote its CRD in a newer version, which has more than the wanted CRD. It is
// so after a return to an older hypergate or an older Istio.
func (f Fact) isLaterVersion(w Wanted) bool {
	more := f.Content == Read && len(f.Difference.Fixed) == 0 && !f.Difference.onlyAdds()
	return f.Metadata.Authorship == Author && compareVersions(f.Metadata.Version, w.Version) == newer && more
}

func (f Fact) losesUsed() bool { return len(f.Difference.Lost) > 0 && f.Use == Used }

// order is how a claimed version compares with the wanted one.
type order int

const (
	unclear order = iota
	older
	equal
	newer
)

// compareVersions parses versions such as v1.4.1 and 1.20.3-rc.0. It also accepts v1.5 and 1.28, which are common but
// not valid semantic versions.
func compareVersions(claimed, wanted string) order {
	have, err := parseVersion(claimed)
	if err != nil {
		return unclear
	}
	want, err := parseVersion(wanted)
	switch {
	case err != nil:
		return unclear
	case have.LessThan(want):
		return older
	case want.LessThan(have):
		return newer
	default:
		return equal
	}
}

func parseVersion(text string) (*apiversion.Version, error) {
	if v, err := apiversion.ParseSemantic(text); err == nil {
		return v, nil
	}
	return apiversion.ParseGeneric(text)
}
