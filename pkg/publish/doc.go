// Package publish has the strategies to publish istiod's xDS to the guest's nodes. It computes the endpoint, which is
// the host and port at which the guest's gateways reach istiod, and the objects that make it reachable.
//
// # Workflow
//
//	Config, HostedControlPlane ─► StrategyFor ─► Find ─► Strategy ─┬─► Service, Route: objects of the management side
//	                                                               └─► EndpointOf ─► EndpointKnown
//	                              observed endpoints ──────────────────┘             EndpointPending
//	                                                                                 EndpointUnavailable
//
// EvidenceOf returns what package mgmt observes for a strategy. ValidateFlags checks the flags.
//
// # Invariants
//
//   - All functions are pure: no clock, no API server.
//   - The table allStrategies is the only place that decides how a strategy publishes istiod. A strategy without a row
//     is rejected by ValidateFlags, and EndpointOf returns EndpointUnavailable for it.
//   - StrategyFor never returns PublishAuto.
//   - An endpoint of any strategy except PublishAddress has a valid host name or address. Its host does not contain the
//     name of the management namespace (leakcheck.NamesNamespace). Package desired checks Config.XDS, the endpoint of
//     PublishAddress.
//   - The reason of EndpointPending is safe to show in the guest. The reason of EndpointUnavailable is not.
package publish
