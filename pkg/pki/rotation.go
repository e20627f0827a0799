package pki

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"time"
)

// RotationPhase is where a rotation stands.
type RotationPhase string

const (
	// Steady: there is one root, and what it vouches for issues.
	Steady RotationPhase = ""
	// Spreading: a new root is trusted beside the old one, which still issues: until everybody has heard of the new one.
	Spreading RotationPhase = "spreading"
	// Settling: the new one issues, and the old root is still trusted: until everything that it vouched for is replaced.
	Settling RotationPhase = "settling"
)

// Rotation is what must be remembered of a rotation beside the CA that issues. The zero value is that of a CA that is not being rotated and
// was never asked to be.
type Rotation struct {
	Phase RotationPhase
	// Since is when the phase began, Effective since when everybody can know what it brought; zero while that is not so. A phase lasts from then on.
	Since, Effective time.Time
	// Next is, while Spreading, the CA that will issue; while Settling, its root alone.
	Next CA
	// Request is the last request for a rotation that was followed.
	Request string
}

// RotationOptions are what a step depends on beside the state and the time.
type RotationOptions struct {
	// Overlap is how long both roots are trusted, before the switch and again after it.
	Overlap time.Duration
	// Request asks for a rotation by differing from the last request that was followed; empty asks for nothing.
	Request string
}

// Step does what is due: it begins a rotation that is asked for, or that the age of the CA asks for, and takes each of its steps in its time.
// At most one step is taken, however much time has passed: whoever was away must not miss one. It returns the CA and the rotation as they are
// then; both are unchanged when nothing is due. Written down in one piece, they are where a rotation goes on after a crash.
func (r Rotation) Step(ca CA, now time.Time, o RotationOptions) (CA, Rotation, error) {
	switch r.Phase {
	case Steady:
		return r.begin(ca, now, o)
	case Spreading:
		if !r.over(now, o) {
			return ca, r, nil
		}
		issuing := r.Next
		issuing.Root = ca.Root // both
		return issuing, Rotation{Phase: Settling, Since: now, Next: CA{Root: r.Next.Root}, Request: r.Request}, nil
	case Settling:
		if !r.over(now, o) {
			return ca, r, nil
		}
		ca.Root = r.Next.Root
		return ca, Rotation{Request: r.Request}, nil
	default:
		return CA{}, Rotation{}, fmt.Errorf("the rotation of the mesh CA is in phase %q, which this version does not know", r.Phase)
	}
}

func (r Rotation) begin(ca CA, now time.Time, o RotationOptions) (CA, Rotation, error) {
	asked := o.Request != "" && o.Request != r.Request
	due, err := ca.RotateAt()
	if err != nil {
		return CA{}, Rotation{}, err
	}
	if !asked && now.Before(due) {
		return ca, r, nil
	}
	next, err := New(now)
	if err != nil {
		return CA{}, Rotation{}, err
	}
	ca.Root = bytes.Join([][]byte{bytes.TrimSpace(ca.Root), next.Root}, []byte("\n"))
	return ca, Rotation{Phase: Spreading, Since: now, Next: next, Request: cmp.Or(o.Request, r.Request)}, nil
}

// over says that the phase has lasted long enough.
func (r Rotation) over(now time.Time, o RotationOptions) bool {
	return !r.Effective.IsZero() && !now.Before(r.Effective.Add(o.Overlap))
}

// Due says whether there is anything to do or to wait for: a rotation is under way, asked for, or due for the age of the CA. If not, it says when
// it will be.
func (r Rotation) Due(ca CA, now time.Time, o RotationOptions) (bool, time.Time, error) {
	if r.Phase != Steady || o.Request != "" && o.Request != r.Request {
		return true, time.Time{}, nil
	}
	at, err := ca.RotateAt()
	return err == nil && !now.Before(at), at, err
}

// Check says whether what is remembered fits the CA that issues.
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
		return fmt.Errorf("phase %q is none that this version knows", r.Phase)
	}
	if !bytes.Contains(ca.Root, bytes.TrimSpace(r.Next.Root)) || len(r.Next.Root) == 0 {
		return fmt.Errorf("while %s, the next root is not among those that are trusted", r.Phase)
	}
	return nil
}

// RotateAt is when a CA should be replaced for its age: after four fifths of the life of its certificate or of its shortest root, whichever
// comes first.
func (c CA) RotateAt() (time.Time, error) {
	var first time.Time
	for _, data := range [][]byte{c.Cert, c.Root} {
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			cert, err := parse(pem.EncodeToMemory(block))
			if err != nil {
				return time.Time{}, fmt.Errorf("reading the life of the mesh CA: %w", err)
			}
			at := cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 5 * 4)
			if first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	if first.IsZero() {
		return time.Time{}, fmt.Errorf("reading the life of the mesh CA: no certificate in it")
	}
	return first, nil
}
