// Package apply makes one cluster agree with a list of objects, and watches them. It knows nothing of what the objects are for.
//
// # Workflow
//
//	New ─► Start ─► reflectors (one per kind or name, by label, metadata only) ─► tracker ─► notify
//	                                                                               │
//	Apply(objects)  ─► admit (refuse the whole call, or none) ─► plan ◄────────────┤
//	                    └► server-side apply of those that need it ─► Report       │
//	Prune(keep)     ─► members that are not kept, by UID ◄─────────────────────────┘
//
// An object needs a write when its JSON changed, or when the watch has shown, with a resourceVersion newer than that of our last write,
// that it is gone, is another object by UID, or that our entry in its managedFields changed. The last is how drift is seen without reading
// objects: the API server takes a field out of our entry as soon as somebody else changes it, and leaves our entry alone when somebody
// writes the status, or a field that is not ours. Somebody who writes in our own name, such as another process of ours with other flags,
// may leave our fields the same and change their values: then the time of our entry is newer. It has whole seconds, so one thing stays
// unseen: other values for exactly our fields, in our name, within the second of our own write.
//
// Kinds that are known (Known) are those that were listed, and those whose watch has met a problem that waiting does not mend.
//
// # Invariants
//
//   - An object that needs no write costs no request. One that drifted costs one write.
//   - A stale event never causes a write: what the watch shows counts only when it is newer than what we wrote.
//   - A list that began after a write was answered must show it. If it does not, the cluster was restored from a backup, whatever the versions say, and the
//     object is written again. In another session (watch.WithSession) nothing is known before each kind was listed in it.
//   - Fields are taken from others by force only on objects that are ours: the watch shows our label, we remember the UID, or the object's
//     managedFields name us. Anything else is a conflict, and stays as it is.
//   - Objects of prunable kinds are ours alone: one that exists and is not ours is never written, since it would be deleted some day. No
//     watch shows such an object, so nobody is notified when it goes away: try again later.
//     Kinds that are not pruned are shared: an object of somebody else gets our fields where they do not collide.
//   - What a caller has decided on a version (At) is written at that version, or not at all.
//   - Only members are pruned, by UID and resourceVersion, and only when the watches of all prunable kinds have shown what there is.
//   - Nobody drives us to write without end: of each object a burst of writes and deletions is sent, then one every ten seconds
//     (VerdictDamped). There are no timers here: Report.RetryAfter tells the caller when to come again.
//   - The failure of one object stops no other one; only an API server that does not answer at all ends the call.
//   - No discovery, no OpenAPI, no REST mapping: the kinds are a closed table given by the caller.
package apply
