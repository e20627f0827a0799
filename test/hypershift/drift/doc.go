// Package drift finds out whether the rules of HyperShift that package hypershift repeats have changed in a newer tree
// of HyperShift.
//
// # Workflow
//
//	rules of package hypershift ─► Take(tree of Commit) ─► Record ─► testdata/rules.txt
//	                               newer tree ─► Compare(Record) ─► []Difference
//
// A record has a hash of the source of each function with a rule, and the names of all other functions of the same
// files. It has no source of HyperShift.
//
// # Invariants
//
//   - Comments, blank lines and indentation do not change a hash. Everything else does.
//   - A function with a rule that a tree does not have is an error of Take, and a Difference of Compare.
package drift
