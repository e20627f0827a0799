// Package summary is the state of one installation in one line: what hypergate writes as an annotation of its own
// Lease, and what `hypergate status` and `hypergate fleet` read. It is pure: the caller passes the time.
//
// # Workflow
//
//	last pass ─► Summary ─► Encode ─► annotation of the Lease ─► Parse ─► Summary ┐
//	                                  holder and renewTime of the Lease ──────────┴─► Read ─► Reading: a State
//
// # Invariants
//
//   - A summary has at most MaxSize bytes. Messages are cut first; all other texts have a limit of their own.
//   - It contains no secret: times, counts, states, names of the management side, and the messages of the conditions.
//   - All text is one printable line, when it is written and when it is read: any client that can write the Lease can
//     forge a summary.
//   - Parse ignores unknown fields. A summary of a later schema is an error that names both versions.
package summary
