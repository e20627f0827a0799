// Package translate turns Envoy's resources into the values of package model.
//
// Work on a resource has two steps. First, a Checker walks through the whole message and compares it with one
// table: a field that the table does not list, a type that it does not list, and a field number that this version
// of Envoy's API does not know are errors. Then a function per message reads the fields that the table lists as
// used, and checks their values.
//
// Invariants: an error names the resource and the path of the field, because the xDS client sends it as NACK. A
// field that the data plane does not obey is either an error, or the table lists it as ignored because it does not
// change where a request goes. The package is pure.
package translate
