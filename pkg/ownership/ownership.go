package ownership

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// Lease is something of a guest that one hypergate alone can have.
type Lease struct {
	// Name is the name of the Lease in Config.GuestNamespace that stands for it, What is what it is, in words.
	Name, Purpose string
}

// Leases returns what an installation needs for itself, in the order in which it is taken, so that two that want the same never wait for each other:
// the controller name, since two would serve the same GatewayClasses, and the revision, which is in the names of all that hypergate makes.
func Leases(c model.Config) []Lease {
	return []Lease{
		{Name: "hypergate-claim-controller-" + digest(8, c.ControllerName), Purpose: "the controller name " + c.ControllerName},
		{Name: "hypergate-claim-revision-" + c.Revision, Purpose: "the revision " + c.Revision},
	}
}

// digest are so many hexadecimal digits of a hash of some parts.
func digest(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}

// holderDigits are 128 bits.
const holderDigits = 32

// Holders are the names under which this installation holds claims; it takes new ones by the first. They say nothing of the management side that
// the guest could not say itself: what is hashed is random, or the guest's own. The cluster ID goes before the namespace's UID, since a hosted cluster that is moved or
// restored brings the claims in its etcd along; both count, since the HostedControlPlane may be there, or readable, only later.
func Holders(cfg model.Config, h model.ManagementObservation) []string {
	var out []string
	add := func(kind, id string) {
		if id != "" {
			out = append(out, fmt.Sprintf("%s/%s/%s", cfg.Topology, cfg.Revision, digest(holderDigits, "hypergate installation", kind, id)))
		}
	}
	if cfg.Topology == model.TopologyHosted {
		add("cluster", h.ControlPlane.ClusterID)
	}
	add("namespace", string(h.NamespaceUID))
	return out
}

// State is to whom belongs what an installation needs of a guest: Vacant, Held, Taken or Unclear.
type State interface{ isState() }

// Unclaimed says that nobody else has anything of it, and this is what we do not have yet.
type Unclaimed struct{ Missing []Lease }

// Owned says that all is ours.
type Owned struct{}

// OwnedByOther says that somebody else has some of it.
type OwnedByOther struct{ By []LeaseOfOther }

// LeaseOfOther is a claim that somebody else has.
type LeaseOfOther struct {
	Claim Lease
	model.HeldLease
}

// Unknown says that there is no telling.
type Unknown struct{ Err error }

func (Unclaimed) isState()    {}
func (Owned) isState()        {}
func (OwnedByOther) isState() {}
func (Unknown) isState()      {}

// Of decides to whom a guest belongs. A Lease without a holder is free.
func Of(cfg model.Config, hosted model.ManagementObservation, seen model.ObservedLeases) State {
	if seen.Unknown != nil {
		return Unknown{seen.Unknown}
	}
	holders := Holders(cfg, hosted)
	var missing []Lease
	var taken []LeaseOfOther
	for _, claim := range Leases(cfg) {
		i := slices.IndexFunc(seen.Held, func(h model.HeldLease) bool { return h.Name == claim.Name && h.Holder != "" })
		switch {
		case i < 0:
			missing = append(missing, claim)
		case !slices.Contains(holders, seen.Held[i].Holder):
			taken = append(taken, LeaseOfOther{claim, seen.Held[i]})
		}
	}
	switch {
	case len(taken) > 0:
		return OwnedByOther{taken}
	case len(missing) > 0:
		return Unclaimed{missing}
	default:
		return Owned{}
	}
}

// OwnLeases are the claims of a guest that this installation has.
func OwnLeases(cfg model.Config, hosted model.ManagementObservation, seen model.ObservedLeases) []model.HeldLease {
	holders := Holders(cfg, hosted)
	return slices.DeleteFunc(slices.Clone(seen.Held), func(h model.HeldLease) bool {
		return !slices.Contains(holders, h.Holder) || !slices.ContainsFunc(Leases(cfg), func(c Lease) bool { return c.Name == h.Name })
	})
}

// OwnedByOtherError refuses a plan because the guest belongs to another hypergate. Its text is fit for the guest.
type OwnedByOtherError struct {
	OwnedByOther
	// Namespace is where the Lease is.
	Namespace string
}

// Error says who has the guest, and how to hand it over.
func (e OwnedByOtherError) Error() string {
	var who []string
	what, leases := make([]string, 0, len(e.By)), make([]string, 0, len(e.By))
	for _, by := range e.By {
		what, leases = append(what, by.Claim.Purpose), append(leases, by.Claim.Name)
		holder := "another hypergate (" + quoted(by.Holder)
		if !by.Since.IsZero() {
			holder += ", since " + by.Since.UTC().Format(time.RFC3339)
		}
		if holder += ")"; !slices.Contains(who, holder) {
			who = append(who, holder)
		}
	}
	return fmt.Sprintf("in this cluster, %s is in use by %s: to hand over, stop that hypergate and its istiod, and then, in this cluster, kubectl -n %s delete lease %s; "+
		"or give this one another --controller-name and another --revision", strings.Join(what, " and "), strings.Join(who, " and "), e.Namespace, strings.Join(leases, " "))
}

// Fingerprint says the same without who, and since when: a guest can change those as often as it likes, and it is one trouble.
func (e OwnedByOtherError) Fingerprint() string {
	what, leases := make([]string, 0, len(e.By)), make([]string, 0, len(e.By))
	for _, by := range e.By {
		what, leases = append(what, by.Claim.Purpose), append(leases, by.Claim.Name)
	}
	return fmt.Sprintf("in the guest, %s is in use by another hypergate, which holds the Leases %s in its namespace %s: to hand over, stop that hypergate and its istiod, and then delete these Leases; "+
		"or give this one another --controller-name and another --revision", strings.Join(what, " and "), strings.Join(leases, " "), e.Namespace)
}

// quoted is a printable text of the guest's in quotation marks, so that it cannot pass for ours.
func quoted(theirs string) string {
	if theirs == "" {
		return "unknown"
	}
	return text.Quoted(theirs, longestName)
}

// ContestedError refuses a plan because what is claimed of the guest is taken away again and again. Its text is fit for the guest.
type ContestedError struct {
	Missing []Lease
	// Namespace is where the Leases are, Every how often they are made anew.
	Namespace string
	Every     time.Duration
}

// Error says what is taken away, and what to do.
func (e ContestedError) Error() string {
	leases := make([]string, 0, len(e.Missing))
	for _, claim := range e.Missing {
		leases = append(leases, claim.Name)
	}
	return fmt.Sprintf("in this cluster, the claim by which it belongs to this hypergate is taken away again and again (Lease %s in the namespace %s); it is made anew once in %s, "+
		"and nothing else is done meanwhile: find out who deletes it, in the API server's audit log for example", strings.Join(leases, " and "), e.Namespace, e.Every)
}

// longestName is how much of a name of the guest's a message shows, in bytes.
const longestName = 100

// CheckError refuses a plan because whether the guest belongs to another hypergate cannot be found out, or it cannot be claimed.
type CheckError struct {
	// Verb is what was tried of Leases, or of the namespace that they are to be in.
	Verb string
	Err  error
}

// Error is for the log.
func (e CheckError) Error() string {
	return fmt.Sprintf("making sure that this guest belongs to no other hypergate (%s leases.coordination.k8s.io in it): %v", e.Verb, e.Err)
}

// Unwrap is why.
func (e CheckError) Unwrap() error { return e.Err }
