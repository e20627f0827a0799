// Package docs has tests that hold the documentation against the code.
//
// # Workflow
//
// A test reads a table of docs/ and the Go source that the table names, and fails where they differ. It needs nothing but the checkout.
//
// # Invariants
//
//   - A number in docs/reference/limits.md is the value of the constant that its row names.
//   - A relative link of a page leads to a file, and to a heading of it.
//   - The README is short.
//   - The examples of deploy/ are objects of the Gateway API that fit together.
package docs
