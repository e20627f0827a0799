// Package apply makes one cluster match a list of objects and watches these objects. It does not know the purpose of
// the objects.
//
// An object is owned if it carries the owner label, or if our field manager applied fields to it. See Cluster.Ours.
//
// # Workflow
//
//	New ─► Start ─► reflectors (one per kind or name, by label, metadata only) ─► tracker ─► notify
//	                                                                               │
//	Apply(objects)  ─► admit (refuse the whole call, or none) ─► plan ◄────────────┤
//	                    └► server-side apply of those that need it ─► Report       │
//	Prune(keep)     ─► members that are not kept, by UID ◄─────────────────────────┘
//
// Apply writes an object if its JSON changed. Apply also writes it if the watch has shown one of these changes, with a
// resourceVersion newer than that of our last write:
//
//   - the object is gone,
//   - the object has another UID,
//   - our entry in its managedFields changed.
//
// The last rule detects drift without reading objects. The API server removes a field from our entry as soon as another
// manager changes that field. It leaves our entry unchanged when another manager writes the status or other fields.
//
// Another process can write with our field manager name, for example a second hypergate with other flags. Such a write
// can keep our set of fields and change only their values. Then the time of our entry is newer. That time has a
// resolution of one second. One case therefore stays undetected: a write with our field manager name, to exactly our
// fields, in the same second as our own write.
//
// The API server writes the status of some kinds after each change. Kind.Settle makes Apply wait for that write before
// it restores a changed object.
//
// A kind is known (Known) after it was listed, or after its watch met a problem that waiting does not solve.
//
// # Invariants
//
//   - An object that needs no write costs no request. An object that drifted costs one write.
//   - A stale event never causes a write. An event counts only if it is newer than our last write.
//   - A list that began after the response to a write must show that write. If it does not, the cluster was restored
//     from a backup, whatever the resource versions are. The object is then written again.
//   - A new session (watch.WithSession) starts with no knowledge. Each kind must be listed again in it.
//   - Apply forces fields only on owned objects. For this rule, an object is owned if the watch shows the owner
//     label, the tracker remembers its UID, or its managedFields name our manager. Any other collision is a conflict,
//     and the object stays unchanged. AtVersion is the exception: it forces fields at the chosen version.
//   - Objects of prunable kinds are never shared. Apply never writes an existing object that is not owned, because a
//     later Prune would delete it. No watch shows such an object, so its removal causes no notification. The caller
//     must try again later.
//   - Kinds that are not prunable are shared. A foreign object gets our fields where they do not collide.
//   - An object whose version the caller chose (AtVersion) is written at that version or not at all. It is created
//     if it is gone.
//   - Prune deletes only members, by UID and resourceVersion. It starts only after the watches of all prunable kinds
//     have shown their objects.
//   - The rate of writes is limited, so another writer cannot cause endless writes. Each object gets a burst of writes
//     and deletions, then one every ten seconds (VerdictRateLimited). The package has no timers. Report.RetryAfter
//     returns when the caller must call again.
//   - The number of members is not ours to decide: any client can make objects that look like ours. Each call of Prune
//     deletes a limited number of them, in turn, and all calls together have a rate limit. A report has a limited
//     number of failed deletions.
//   - What is kept of a failure from one call to the next is short.
//   - A failure of one object does not stop the other objects. Only an API server that does not respond ends the call.
//   - The package uses no discovery, no OpenAPI and no REST mapping. The caller gives a closed table of kinds.
package apply
