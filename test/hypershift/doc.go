// Package hypershift is for tests without HyperShift. It has the rules by which HyperShift's two end-to-end suites
// judge the pods and Routes of a hosted control plane, and what its framework makes of a component's assets.
//
// # Workflow
//
//	Deployment ─► Broken ─► messages          Rules: a row for each rule, with its functions in HyperShift
//	Routes ─► BrokenRoutes ─► messages        Others: functions that no check here judges, and the tests that do
//	assets ─► Component.Render ─► objects     Workloads: the entries for HyperShift's registry of workloads
//
// Package drift compares the functions with a newer HyperShift. The folder stub is a Go module of its own: a stand-in
// for HyperShift's framework, in which deploy/cpo/component runs.
//
// # Invariants
//
//   - All facts are of one commit of HyperShift, Commit. There is no source of HyperShift.
//   - A rule that differs between the suites has a row for each form.
package hypershift
