// Package values parses the chart values that a user adds to hypergate's own. It is pure: its input is the content of
// a file.
//
// # Workflow
//
// Parse checks each value against the table of allowed values, and returns Values for istiod and for the gateway
// classes.
//
// # Invariants
//
//   - Only values in the table (table.go) are allowed. All other values of the charts belong to hypergate. They
//     decide on which side an object is created, what can be read there, and whom istiod trusts.
//   - An error lists all mistakes in a file (the first 20), each with file, line, column, path of the value, and
//     cause. A file with any mistake is refused as a whole.
//   - YAML anchors and aliases are refused, so that a small file cannot expand to a large value.
package values
