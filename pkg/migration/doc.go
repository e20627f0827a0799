// Package migration decides how a guest's own istiod is replaced by the hosted one, Gateway by Gateway.
//
// The origin is the istiod that the guest has: installed by OLM and the Sail operator, by the sail library of
// OpenShift's ingress operator, or by Istio's Helm chart. Two istiods of the same revision share the lock of the
// controller that deploys Gateways, so one of them leads. A held Gateway is deployed by neither. The origin configures
// the pods that it made until the last Gateway has moved.
//
// # Workflow
//
//	Inventory ─► Check ─► []Finding: blockers and warnings ┐
//	Lease: Intent, Memo ───────────────────────────────────┼─► Decide ─► one Step and the next Memo ─► Report
//	Evidence, now ─────────────────────────────────────────┘
//
// A request of a person is judged with all that the Lease has: Record.After returns the next Intent, or why the request
// is refused. The Report is what people see. No decision follows from it.
//
// The phases of a migration are Check, StandBy, Hold, Lead, Roll, Park, Retire and Done. A rollback goes through them
// in the other direction, down to Check.
//
// # Invariants
//
//   - All functions are pure: no clock, no API server.
//   - Each phase follows from evidence that can be read again. An empty Memo leads to the same phases. It only repeats
//     waiting, and one attempt for a Gateway that failed.
//   - A Step has at most one action. Repeating an action changes nothing.
//   - An action writes only what the table of its phase lists (Permitted). Nothing of the guest is deleted.
//   - The leader of the origin changes only while all Gateways with a Deployment are held.
//   - Elections are off only while the origin does not exist.
//   - The origin is parked only after no Gateway needs it.
//   - A Gateway that failed stops the migration. Only a new request goes on. A rollback moves the others before
//     that, and goes on when the Gateway has arrived after all.
//   - The hosted istiod is removed only after no pod of a Gateway can be one of its own.
package migration
