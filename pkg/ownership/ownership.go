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

// Lease is an ownership Lease. It represents something of a guest that only one hypergate can use.
type Lease struct {
	// Name is the name of the Lease in Config.GuestNamespace. Purpose describes what it represents.
	Name, Purpose string
}

// Leases returns the Leases that an installation needs, in the order in which it acquires them. The fixed order
// ensures that two installations that need the same Leases never wait for each other.
//
// The Leases represent the controller name, because two installations would serve the same GatewayClasses, and the
// revision, which is in the names of everything that hypergate creates. Their names must stay the same from version to
// version: a hypergate sees the Leases of another version by their names.
func Leases(c model.Config) []Lease {
	return []Lease{
		{Name: "hypergate-claim-controller-" + digest(8, c.ControllerName), Purpose: "the controller name " + c.ControllerName},
		{Name: "hypergate-claim-revision-" + c.Revision, Purpose: "the revision " + c.Revision},
	}
}

// digest returns the first hexadecimal digits of a SHA-256 hash of the parts.
func digest(digits int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:digits]
}

// holderDigits is the length of the hash in the name of a holder: 128 bits.
const holderDigits = 32

// Holders returns the names under which this installation holds Leases. It acquires new Leases under the first name.
//
// The names reveal nothing about the management side that the guest does not know already: the hashed value is random,
// or the guest's own. The cluster ID comes before the namespace's UID, because a hosted cluster that is moved or
// restored brings the Leases in its etcd along. Both names count, because the HostedControlPlane can appear, or become
// readable, later.
func Holders(cfg model.Config, mgmt model.ManagementObservation) []string {
	var out []string
	add := func(kind, id string) {
		if id != "" {
			out = append(out, fmt.Sprintf("%s/%s/%s", cfg.Topology, cfg.Revision, digest(holderDigits, "hypergate installation", kind, id)))
		}
	}
	if cfg.Topology == model.TopologyHosted {
		add("cluster", mgmt.ControlPlane.ClusterID)
	}
	add("namespace", string(mgmt.NamespaceUID))
	return out
}

// State is who owns a guest: exactly one of Unowned, Owned, OwnedByOther and Unknown. The interface is sealed.
//
//sumtype:decl
type State interface{ isState() }

// Unowned means that no other hypergate holds one of the Leases, and that this one does not hold all of them.
// Missing are the Leases that it does not hold yet.
type Unowned struct{ Missing []Lease }

// Owned means that this hypergate holds all Leases.
type Owned struct{}

// OwnedByOther means that other hypergates hold the Leases By, at least one.
type OwnedByOther struct{ By []LeaseOfOther }

// LeaseOfOther is a Lease that another hypergate holds.
type LeaseOfOther struct {
	Lease Lease
	model.HeldLease
}

// Unknown means that the Leases could not be observed, because of Err.
type Unknown struct{ Err error }

func (Unowned) isState()      {}
func (Owned) isState()        {}
func (OwnedByOther) isState() {}
func (Unknown) isState()      {}

// Of returns who owns a guest. A Lease without a holder is free.
func Of(cfg model.Config, mgmt model.ManagementObservation, seen model.ObservedLeases) State {
	if seen.Unknown != nil {
		return Unknown{seen.Unknown}
	}
	holders := Holders(cfg, mgmt)
	var missing []Lease
	var ofOthers []LeaseOfOther
	for _, lease := range Leases(cfg) {
		i := slices.IndexFunc(seen.Held, func(h model.HeldLease) bool { return h.Name == lease.Name && h.Holder != "" })
		switch {
		case i < 0:
			missing = append(missing, lease)
		case !slices.Contains(holders, seen.Held[i].Holder):
			ofOthers = append(ofOthers, LeaseOfOther{lease, seen.Held[i]})
		}
	}
	switch {
	case len(ofOthers) > 0:
		return OwnedByOther{ofOthers}
	case len(missing) > 0:
		return Unowned{missing}
	default:
		return Owned{}
	}
}

// OwnLeases returns the Leases of a guest that this installation holds.
func OwnLeases(cfg model.Config, mgmt model.ManagementObservation, seen model.ObservedLeases) []model.HeldLease {
	holders := Holders(cfg, mgmt)
	return slices.DeleteFunc(slices.Clone(seen.Held), func(h model.HeldLease) bool {
		return !slices.Contains(holders, h.Holder) || !slices.ContainsFunc(Leases(cfg), func(l Lease) bool { return l.Name == h.Name })
	})
}

// OwnedByOtherError is the error of a plan that is rejected because another hypergate owns the guest. Its text is safe
// to show in the guest.
type OwnedByOtherError struct {
	OwnedByOther OwnedByOther // not embedded, because the error is not a State
	// Namespace is the namespace of the Leases.
	Namespace string
	// Wait is how long the guest is still left to an owner that is gone. Zero: the owner is there.
	Wait time.Duration
}

// Error returns who owns the guest, and how to hand it over.
func (e OwnedByOtherError) Error() string {
	var holders []string
	for _, by := range e.OwnedByOther.By {
		holder := "another hypergate (" + quoted(by.Holder)
		if !by.Since.IsZero() {
			holder += ", since " + by.Since.UTC().Format(time.RFC3339)
		}
		if holder += ")"; !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	owns := " owns "
	if len(holders) > 1 {
		owns = " own "
	}
	return strings.Join(holders, " and ") + owns + e.purposes() + ": " + e.handover()
}

// handover returns how to hand the guest over.
func (e OwnedByOtherError) handover() string {
	names := make([]string, 0, len(e.OwnedByOther.By))
	for _, by := range e.OwnedByOther.By {
		names = append(names, by.Lease.Name)
	}
	return fmt.Sprintf("to hand over, stop that hypergate and its istiod, and then run in the guest: kubectl -n %s delete lease %s; "+
		"or set another --controller-name and another --revision on this hypergate", e.Namespace, strings.Join(names, " "))
}

// Fingerprint returns the same as Error, but without the holders and their times. A guest can change these at will,
// and it is still the same problem.
func (e OwnedByOtherError) Fingerprint() string {
	return "another hypergate owns " + e.purposes() + ": " + e.handover()
}

// purposes returns what others own.
func (e OwnedByOtherError) purposes() string {
	out := make([]string, 0, len(e.OwnedByOther.By))
	for _, by := range e.OwnedByOther.By {
		out = append(out, by.Lease.Purpose)
	}
	return strings.Join(out, " and ") + " in this guest"
}

// quoted returns a name from the guest as printable text in quotation marks, so that it cannot pass for hypergate's
// own words.
func quoted(name string) string {
	if name == "" {
		return "unknown"
	}
	return text.Quoted(name, longestName)
}

// ContestedError is the error of a plan that is rejected because the ownership Leases of this hypergate disappear
// repeatedly. Its text is safe to show in the guest.
type ContestedError struct {
	Missing []Lease
	// Namespace is the namespace of the Leases. Every is how often they are created again.
	Namespace string
	Every     time.Duration
	// Wait is how long it takes until they may be created again.
	Wait time.Duration
}

// Error returns which Leases disappear, and what to do.
func (e ContestedError) Error() string {
	names := make([]string, 0, len(e.Missing))
	for _, lease := range e.Missing {
		names = append(names, lease.Name)
	}
	return fmt.Sprintf("in this cluster, the ownership Leases of this hypergate are deleted or released repeatedly (Lease %s in "+
		"namespace %s): hypergate acquires them again once in %s, and applies nothing meanwhile; find the "+
		"client that changes them, for example in the API server's audit log", strings.Join(names, " and "), e.Namespace, e.Every)
}

// longestName is how many bytes of a name from the guest a message shows.
const longestName = 100

// CheckError is the error of a plan that is rejected because the owner of the guest cannot be determined, or the guest
// cannot be acquired.
type CheckError struct {
	// Verb is what failed on the Leases, or on the namespace for them.
	Verb string
	Err  error
}

// Error returns a text for the log.
func (e CheckError) Error() string {
	return fmt.Sprintf("making sure that no other hypergate owns this guest (%s leases.coordination.k8s.io in the guest): %v",
		e.Verb, e.Err)
}

// Unwrap returns the cause.
func (e CheckError) Unwrap() error { return e.Err }
