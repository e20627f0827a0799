package status_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
)

// TestTheVersionThatRuns checks what the conditions of both sides say about the version that istiod reports.
func TestTheVersionThatRuns(t *testing.T) {
	const started = " has been serving since 2026-11-21T10:00:00Z"
	const step = " [set --pilot-image and --proxy-image to images of Istio 1.20.3, or install the hypergate that embeds " +
		"the charts of Istio "
	for name, tc := range map[string]struct {
		running      status.RunningVersion
		rollout      model.Rollout
		want, reason string
		step         string
	}{
		"as planned": {status.VersionReported("1.20.3"), model.RolledOut, "istiod 1.20.3" + started, "AsExpected", ""},
		"a vendor's suffix": {
			status.VersionReported("1.20.3-distroless"), model.RolledOut, "istiod 1.20.3-distroless" + started, "AsExpected", "",
		},
		"another one": {
			status.VersionReported("1.19.8"), model.RolledOut, "istiod 1.19.8" + started + ", although version 1.20.3 is planned",
			"UnplannedVersion", step + "1.19.8]",
		},
		"another one of the same digits": {
			status.VersionReported("1.20.30"), model.RolledOut, "istiod 1.20.30" + started + ", although version 1.20.3 is planned",
			"UnplannedVersion", step + "1.20.30]",
		},
		"not asked":     {status.RunningVersion{}, model.RolledOut, "istiod" + started + " (version 1.20.3 is planned)", "AsExpected", ""},
		"no answer yet": {status.VersionAsked(), model.RolledOut, "istiod" + started + " (version 1.20.3 is planned)", "AsExpected", ""},
		"during a change": {
			status.VersionReported("1.19.8"), model.Rolling, "istiod" + started + ", and is being replaced by version 1.20.3",
			"AsExpected", "",
		},
		"no answer": {
			status.VersionUnknown("istiod [refuses]"), model.RolledOut,
			"istiod" + started + " (version 1.20.3 is planned; the running version is unknown: istiod (refuses))", "AsExpected", "",
		},
		"a version that lies": {
			status.VersionReported("1.20.3\n[delete it]"), model.RolledOut,
			"istiod 1.20.3 (delete it)" + started + ", although version 1.20.3 is planned",
			"UnplannedVersion", step + "1.20.3 (delete it)]",
		},
	} {
		r := serving()
		r.Running, r.Rollout = tc.running, tc.rollout
		available := meta.FindStatusCondition(status.ControlPlane(r, status.DegradedSince{}, nil, now), status.ControlPlaneAvailable)
		if available.Message != tc.want+tc.step || available.Reason != tc.reason || available.Status != "True" {
			t.Errorf("%s: %s %s: %s", name, available.Status, available.Reason, available.Message)
		}
		installed := meta.FindStatusCondition(status.Conditions(r.Classes[0], r, nil, now), status.ControllerInstalled)
		if installed.Message != tc.want || installed.Status != "True" || strings.Contains(installed.Message, "--pilot-image") {
			t.Errorf("%s: %s: %s", name, installed.Status, installed.Message)
		}
	}
}
