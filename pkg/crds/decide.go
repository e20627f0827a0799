package crds

import apiversion "k8s.io/apimachinery/pkg/util/version"

// Mode is whether hypergate looks after CRDs and the installation at all.
type Mode string

const (
	// Managed: it does.
	Managed Mode = "Managed"
	// Unmanaged: somebody else does. Everything stays as it is but istiod, its webhooks and our admission policy, which go.
	Unmanaged Mode = "Unmanaged"
)

// Policy is what the flags and the guest's configuration say about all CRDs.
type Policy struct {
	Mode Mode
	// Consent is what counts for a CRD that says nothing itself.
	Consent Consent
}

// Wanted is the CRD that we would put there: its version and channel. Istio's have no channel.
type Wanted struct{ Version, Channel string }

// Fact is all that is known of one CRD in the guest. The zero Fact is the CRD that is not there.
type Fact struct {
	Owner    Owner
	Metadata Metadata
	// Content is how much is known of what it says; Definition and Difference (from what we would put there) are empty unless it is Read.
	Content    Content
	Definition Definition
	Difference Difference
	// Why is why it is Unreadable.
	Why string
	// Use is whether an object uses what Difference says would be lost.
	Use Use
}

// Content is how much is known of what a CRD says.
type Content int

const (
	// Unread: it was not read yet.
	Unread Content = iota
	// Unreadable: it was read in vain.
	Unreadable
	// Read: it is known.
	Read
)

// Use is whether objects use fields that would be lost.
type Use int

const (
	// Unsearched: nobody has looked yet.
	Unsearched Use = iota
	// Unused: no object uses one.
	Unused
	// Used: one does.
	Used
)

// Verdict is what is done with one CRD.
type Verdict string

const (
	// Install puts it where there is none.
	Install Verdict = "Install"
	// Update writes what is ours, or has become ours.
	Update Verdict = "Update"
	// Adopt takes over what was somebody else's, with consent, or because nobody is left.
	Adopt Verdict = "Adopt"
	// Wait leaves it alone until it is gone. Its end is an event, and then it is installed anew.
	Wait Verdict = "Wait"
	// Keep leaves it alone, because that is as it should be.
	Keep Verdict = "Keep"
	// Blocked leaves it alone, although it is not as it should be. Somebody must decide.
	Blocked Verdict = "Blocked"
	// Undetermined leaves it alone, because not enough is known.
	Undetermined Verdict = "Undetermined"
)

// Writes says whether the CRD is written.
func (v Verdict) Writes() bool { return v == Install || v == Update || v == Adopt }

// Reason is why a Verdict is what it is.
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
	IsReleased           Reason = "Released"
	IsUnmanaged          Reason = "Unmanaged"
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

// Decide decides about one CRD: the one place where it is decided whether a CRD is written. It errs on the side of leaving alone.
//
// Never is a version lowered, a stored version dropped, or a field taken away that an object is known to use; nor is anything of a live owner's
// written, or of an unknown one's.
func Decide(f Fact, w Wanted, p Policy) Decision {
	switch {
	case p.Mode != Managed && p.Mode != "": // what nobody here knows is not a reason to write, either
		return Decision{Keep, IsUnmanaged}
	case f.Owner.Kind == Unowned:
		return Decision{Install, IsAbsent}
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

func decideByOwner(f Fact, w Wanted, consent Consent) Decision {
	switch f.Owner.Kind {
	case LiveOLM:
		return Decision{Keep, IsOLMs}
	case Ours:
		return decideOurs(f, w, consent)
	case OrphanedOLM, IngressOperator, ThirdParty:
		return decideOthers(f, w, consent)
	default:
		return Decision{Undetermined, IsUnknown}
	}
}

// decideOurs decides about what is ours, by its metadata alone where that says enough, so that what somebody changed is put right before it was
// read. What tells a change from an upgrade that somebody else has made is the claim of a newer version, or of another channel.
func decideOurs(f Fact, w Wanted, consent Consent) Decision {
	update, claim := Decision{Update, IsOurs}, versionClaimOf(f.Metadata, w)
	switch decision, refused := refusedByServer(f); {
	case refused:
		return decision
	case claim != claimsNothing && f.Content != Read:
		return unread(f)
	case f.Content == Read && f.Difference.onlyAdds():
		return update // whatever it claims to be, ours has all that it has
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

// versionClaim is what a CRD of ours claims to have become.
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

// decideOthers decides about what is somebody's who cannot be asked, or is not there any more.
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

// decideLoss lets a decision to write pass if nothing is lost by it.
func decideLoss(f Fact, w Wanted, write Decision) Decision {
	claim := compareVersions(f.Metadata.Version, w.Version)
	switch decision, refused := refusedByServer(f); {
	case refused:
		return decision
	case f.Difference.onlyAdds():
		return write // whatever it claims to be, ours has all that it has
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

// refusedByServer says whether the API server would refuse to put ours in the place of what is there.
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

// unread leaves alone what must be known first.
func unread(f Fact) Decision {
	if f.Content == Unreadable {
		return Decision{Undetermined, IsUnreadable}
	}
	return Decision{Undetermined, IsUnread}
}

// Same says whether the CRD that is there is to every client the one that we would put there.
func (f Fact) Same() bool {
	return f.Content == Read && f.Difference.None() && len(f.Difference.Unkept) == 0
}

func (f Fact) losesUsed() bool { return len(f.Difference.Lost) > 0 && f.Use == Used }

// order is how a claimed version lies to the wanted one.
type order int

const (
	unclear order = iota
	older
	equal
	newer
)

// compareVersions reads versions such as v1.4.1, 1.20.3-rc.0, and v1.5 or 1.28, which people write and the standard does not know.
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
