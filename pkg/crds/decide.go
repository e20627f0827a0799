package crds

// Owner is who a CRD belongs to.
type Owner int

const (
	// Absent is nobody: there is no such CRD.
	Absent Owner = iota
	// Ours is hypergate: the CRD carries our membership label, and we may write it.
	Ours
	// Foreign is everybody else, known or not. Another revision of hypergate is foreign, too: it may bring another version.
	Foreign
)

// Phase is whether a CRD stays. Whether it is served is not told by its metadata, and does not matter for what to write.
type Phase int

const (
	// Lasting is a CRD that stays.
	Lasting Phase = iota
	// Terminating is a CRD that is being deleted: it takes no new objects, and goes when its last object is gone.
	Terminating
)

// Fact is what the guest shows of one CRD. The zero Fact is the CRD that is not there.
type Fact struct {
	Owner Owner
	Phase Phase
}

// FactOf is the Fact of a CRD that is there: whether it carries our membership label, and whether it is being deleted.
func FactOf(ours, terminating bool) Fact {
	fact := Fact{Owner: Foreign, Phase: Lasting}
	if ours {
		fact.Owner = Ours
	}
	if terminating {
		fact.Phase = Terminating
	}
	return fact
}

// Decision is what to do with one CRD.
type Decision int

const (
	// Keep leaves the CRD alone, because it is not ours.
	Keep Decision = iota
	// Wait leaves our CRD alone until it is gone. Its end is an event, and then it is installed anew.
	Wait
	// Update applies our CRD to ours.
	Update
	// Install applies our CRD where there is none.
	Install
)

// Decide decides about one CRD. It errs on the side of leaving alone: what it does not know, it keeps.
func Decide(f Fact) Decision {
	switch {
	case f.Owner == Absent:
		return Install
	case f.Owner == Ours && f.Phase == Terminating:
		return Wait
	case f.Owner == Ours:
		return Update
	default:
		return Keep
	}
}
