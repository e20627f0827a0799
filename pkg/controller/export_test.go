package controller

// What the tests of this package see of it.
var (
	Told      = told
	FailureOf = failureOf
	CheckPair = guard
	// KubeconfigProblem is kubeconfigProblem.
	KubeconfigProblem = kubeconfigProblem
)

// Passing, Trouble and WaitingRotation are what a Reconciler remembers of what it said.
type (
	Passing         = passing
	Trouble         = trouble
	WaitingRotation = waitingRotation
)

// Wait is wait.
var Wait = (*passing).wait

// Tell is tell.
var Tell = (*trouble).tell

// CRDMetrics is crdMetrics.
type CRDMetrics = crdMetrics

// Keep is keep.
var Keep = (*crdMetrics).keep

// TellRotation is tell of a rotation that waits.
var TellRotation = (*waitingRotation).tell
