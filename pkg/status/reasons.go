package status

import (
	"slices"

	"github.com/hypergate/hypergate/pkg/apply"
)

// Reasons returns all reasons of the conditions of a HostedControlPlane, sorted. Metrics have no other ones.
func Reasons() []string {
	out := []string{
		ReasonAsExpected, ReasonNotRequested, ReasonIngressDisabled, ReasonNotEnabled, ReasonInstalling, ReasonUninstalling,
		ReasonRollingOut,
		ReasonRolloutStuck, ReasonWaiting, ReasonWaitingForGuest, ReasonBlocked, ReasonEndpointUnreachable, ReasonEndpointPending,
		ReasonReconciliationPaused, ReasonPlanRejected, ReasonGuestKubeconfig, ReasonWriteConflict, ReasonCARotation,
		ReasonAdoptionUnfinished, ReasonCRDOwnerUnknown, ReasonFieldsWouldBeDropped, ReasonCRDsNotRead, ReasonManagementSideUnknown,
		ReasonUnmanaged, ReasonWaitingForControlPlane, ReasonGatewayRollout, ReasonGatewayRolloutStuck, ReasonGatewayRolloutForbidden,
		ReasonUnplannedVersion, ReasonUnsupportedTLSProfile, ReasonUnsupportedCRDVersion, ReasonMigrating, ReasonMigrationBlocked,
		ReasonMigrationStopped, ReasonGatewayDefaultsRefused,
	}
	for _, row := range precedence() {
		out = append(out, row.Reason)
	}
	for _, class := range apply.ErrorClasses() {
		out = append(out, class.String())
		if class.IsTransient() {
			out = append(out, guestReason(class))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// guestReason returns the reason of a transient cause of the guest, which has the same class on the management side.
func guestReason(class apply.ErrorClass) string { return "Guest" + class.String() }
