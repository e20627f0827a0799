// Package docs has tests that compare the documentation with the code.
//
// # Workflow
//
// A test reads a table of docs/ and the Go source that the table names, and fails if they differ. It only needs the
// checkout.
//
// # Invariants
//
//   - A number in docs/reference/limits.md is the value of the constant in its row.
//   - A relative link of a page refers to an existing file, and to an existing heading.
//   - The README is short, and so are the sentences of the documentation.
//   - Packages import only packages of a floor below, in the picture of docs/development.md.
//   - Comments, strings, identifiers and pages have no phrase of a list of words that readers do not expect.
//   - The examples of deploy/ are valid objects of the Gateway API that refer to each other.
package docs
