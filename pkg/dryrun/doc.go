// Package dryrun turns the writes of a client into dry runs, and records what each would change.
//
// # Workflow
//
// Recorder.Wrap wraps the transport of a client. For each write it reads the object, sends the write as a dry run, and
// records the fields in which the two differ. The caller of the client sees the response of the dry run.
//
// # Invariants
//
//   - No request other than a read leaves the transport without dryRun=All. A write that it does not know is refused.
//   - No token is requested: the request is answered here. So is an apply in a namespace that an earlier write creates.
//   - A record has the names of fields, and no values. Values can be secrets.
package dryrun
