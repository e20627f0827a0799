package controller

// What the tests of this package see of it.
var (
	Told    = told
	Lasting = lasting
)

// Passing and Trouble are what a Reconciler remembers of what it said.
type (
	Passing = passing
	Trouble = trouble
)

// Wait is wait.
var Wait = (*passing).wait

// Tell is tell.
var Tell = (*trouble).tell
