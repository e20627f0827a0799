// Package values reads what a user adds to the values of Istio's charts: pure, from a file's bytes.
//
// # Invariants
//
//   - Only what is in the table (table.go) may be given. Everything else of the charts' values decides which side an object goes to, what may be read
//     there, or whom istiod trusts, and is hypergate's.
//   - All that is wrong with a file is told, each with file, line, column, the value's path and its cause. A file that is partly wrong is refused whole.
//   - YAML's anchors and aliases are refused, so that a small file stays a small value.
package values
