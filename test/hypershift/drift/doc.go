// Package drift finds out whether the rules of HyperShift that package hypershift repeats have changed in a newer tree
// of HyperShift.
//
// # Workflow
//
//	rules of package hypershift ─► Take(tree of Commit) ─► Record ─► testdata/rules.txt
//	                               newer tree ─► Compare(Record) ─► []Difference
//
// A record has a hash of the source of each function with a rule, and of each declaration of the same folders that a
// rule uses. It also has the names of the Go files of these folders and of their functions. It has no source of
// HyperShift. Only these folders are read, without those below them.
//
// # Invariants
//
//   - Comments, blank lines and indentation do not change a hash. Everything else does.
//   - A function with a rule that a tree does not have is an error of Take, and a Difference of Compare.
//   - No types are checked, so a record can have a helper that no rule uses. It can also lack one, for example a method
//     of a type that no rule and no other helper names.
package drift
