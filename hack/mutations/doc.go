// Command mutations checks that the test of each guarantee can fail. For each row of a table, it takes the code behind
// a guarantee out, and runs the guarantee's test, which must fail then.
//
//	go run ./hack/mutations [-guarantee NAME]
//
// # Workflow
//
//	row of the table ─► its test passes ─► overlay with other code ─► its test fails
//
// # Invariants
//
//   - No file of the checkout changes: the other code is in an overlay (go help build).
//   - Code that does not compile is an error.
//   - Each text that is replaced occurs once in its file. A unit test checks that.
package main
