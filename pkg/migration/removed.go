package migration

// RemovedRequest returns that the request was removed while a migration was in progress, as a sentence, and what a
// person can do.
func RemovedRequest() (what, next string) {
	return "the request was removed while a migration was in progress",
		"start it again with hypergate migrate start; after that, a rollback is possible"
}

// IsRemoved reports whether the request was removed before the migration, or the rollback, has ended. While the origin
// is parked, it has not: the hosted istiod leads, and the origin can return. In the phase Check, nothing was written.
func (r Record) IsRemoved() bool {
	return r.Intent.Goal == NoGoal && r.Begun()
}
