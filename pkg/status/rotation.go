package status

// RotationWait is what a rotation of the mesh CA waits for, other than the end of its phase.
type RotationWait struct {
	// For is what it waits for, and Step what to do if that does not end by itself. Both are empty if it waits for
	// nothing.
	For, Step string
	// IsLate reports whether it has waited for so long that an action is needed.
	IsLate bool
}

// rotationProblems returns the rotation of the mesh CA as a problem if it has waited too long: the old CA goes on to
// issue certificates. It is transient: after a long outage, a rotation is late and waits for a moment.
func (r Result) rotationProblems() []problem {
	if r.Rotation == "" || !r.RotationWait.IsLate {
		return nil
	}
	return []problem{{
		reason: ReasonCARotation, text: "rotating the mesh CA: it does not proceed " + r.rotationWaits(), waits: ReasonWaiting,
	}}
}

// rotationWaits returns the end of a sentence that names the phase, what it waits for, and the next step.
func (r Result) rotationWaits() string {
	text := "(phase " + plain(r.Rotation) + "; it waits for " + plain(r.RotationWait.For) + ")"
	if r.RotationWait.Step == "" {
		return text
	}
	return text + nextStep(plain(r.RotationWait.Step))
}
