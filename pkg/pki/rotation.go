package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// RotationPhase is the phase of a rotation.
type RotationPhase string

const (
	// Steady means that there is one root, and a CA that it verifies issues certificates.
	Steady RotationPhase = ""
	// Spreading means that a new root is trusted in addition to the old one, and the old CA still issues. It lasts
	// until all clients know the new root.
	Spreading RotationPhase = "spreading"
	// Settling means that the new CA issues, and the old root is still trusted. It lasts until all certificates of
	// the old CA are replaced.
	Settling RotationPhase = "settling"
)

// Rotation is the state of a rotation, without the issuing CA. The zero value belongs to a CA without a rotation or a
// request for one.
type Rotation struct {
	Phase RotationPhase
	// Since is when the phase began. Effective is when all clients were able to know its result, or zero before that.
	// The duration of a phase is measured from Effective.
	Since, Effective time.Time
	// Next is the next issuing CA in phase Spreading. In phase Settling it is only the root of the new CA.
	Next CA
	// Request is the last request for a rotation that was followed, of those on the Secret. LeaseRequest is that of
	// those on hypergate's Lease.
	Request, LeaseRequest string
}

// RotationOptions are the inputs of a step other than the state and the time.
type RotationOptions struct {
	// Overlap is how long both roots are trusted, before the switch and again after it.
	Overlap time.Duration
	// Request and LeaseRequest trigger a rotation if one of them differs from the last one of its kind that was
	// followed. An empty request triggers nothing.
	Request, LeaseRequest string
}

// requests reports whether the options have a request that the rotation has not followed.
func (o RotationOptions) requests(r Rotation) bool {
	return o.Request != "" && o.Request != r.Request || o.LeaseRequest != "" && o.LeaseRequest != r.LeaseRequest
}

// Step begins a rotation that is requested or due because of the age of the CA, or takes its next step if that is
// due. It takes at most one step, however much time has passed, so that clients miss no phase after an outage.
//
// Step returns the new CA and rotation. Both are unchanged if nothing is due. Store them atomically, so that the
// rotation continues after a crash.
func (r Rotation) Step(ca CA, now time.Time, o RotationOptions) (CA, Rotation, error) {
	switch r.Phase {
	case Steady:
		return r.begin(ca, now, o)
	case Spreading:
		if !r.over(now, o) {
			return ca, r, nil
		}
		issuing := r.Next
		issuing.Root = ca.Root // both roots
		next := Rotation{Phase: Settling, Since: now, Next: CA{Root: r.Next.Root}, Request: r.Request, LeaseRequest: r.LeaseRequest}
		return issuing, next, nil
	case Settling:
		if !r.over(now, o) {
			return ca, r, nil
		}
		ca.Root = r.Next.Root
		return ca, Rotation{Request: r.Request, LeaseRequest: r.LeaseRequest}, nil
	default:
		return CA{}, Rotation{}, fmt.Errorf("the rotation of the mesh CA is in phase %q, which this version does not know", r.Phase)
	}
}

func (r Rotation) begin(ca CA, now time.Time, o RotationOptions) (CA, Rotation, error) {
	due, err := ca.RotateAt()
	if err != nil {
		return CA{}, Rotation{}, err
	}
	if !o.requests(r) && now.Before(due) {
		return ca, r, nil
	}
	next, err := New(now)
	if err != nil {
		return CA{}, Rotation{}, err
	}
	ca.Root = bytes.Join([][]byte{bytes.TrimSpace(ca.Root), next.Root}, []byte("\n"))
	return ca, Rotation{
		Phase: Spreading, Since: now, Next: next,
		Request: cmp.Or(o.Request, r.Request), LeaseRequest: cmp.Or(o.LeaseRequest, r.LeaseRequest),
	}, nil
}

// over reports whether the phase has lasted long enough.
func (r Rotation) over(now time.Time, o RotationOptions) bool {
	return !r.Effective.IsZero() && !now.Before(r.Effective.Add(o.Overlap))
}

// Due reports whether a rotation is in progress, requested, or due because of the age of the CA. If not, it returns
// when a rotation will be due.
func (r Rotation) Due(ca CA, now time.Time, o RotationOptions) (bool, time.Time, error) {
	if r.Phase != Steady || o.requests(r) {
		return true, time.Time{}, nil
	}
	at, err := ca.RotateAt()
	return err == nil && !now.Before(at), at, err
}

// Check returns an error unless the rotation matches the issuing CA.
func (r Rotation) Check(ca CA, now time.Time) error {
	switch r.Phase {
	case Steady:
		return nil
	case Spreading:
		if err := r.Next.Check(now); err != nil {
			return fmt.Errorf("the CA that is to issue next: %w", err)
		}
	case Settling:
	default:
		return fmt.Errorf("this version does not know phase %q", r.Phase)
	}
	if !bytes.Contains(ca.Root, bytes.TrimSpace(r.Next.Root)) || len(r.Next.Root) == 0 {
		return fmt.Errorf("while %s, the next root is not among those that are trusted", r.Phase)
	}
	return nil
}

// RotateAt returns when a CA must be replaced because of its age. This is after four fifths of the lifetime of its
// certificate or of its shortest-lived root, whichever comes first.
func (c CA) RotateAt() (time.Time, error) {
	return c.first(func(cert *x509.Certificate) time.Time {
		return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 5 * 4)
	})
}

// Expires returns when the certificate of the issuing CA or its first root expires, whichever comes first.
func (c CA) Expires() (time.Time, error) {
	return c.first(func(cert *x509.Certificate) time.Time { return cert.NotAfter })
}

// first returns the earliest of the times that at returns for the issuing CA and the roots.
func (c CA) first(at func(*x509.Certificate) time.Time) (time.Time, error) {
	var first time.Time
	for _, data := range [][]byte{c.Cert, c.Root} {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			cert, err := parse(pem.EncodeToMemory(block))
			if err != nil {
				return time.Time{}, fmt.Errorf("reading the life of the mesh CA: %w", err)
			}
			if t := at(cert); first.IsZero() || t.Before(first) {
				first = t
			}
		}
	}
	if first.IsZero() {
		return time.Time{}, fmt.Errorf("reading the life of the mesh CA: no certificate in it")
	}
	return first, nil
}
