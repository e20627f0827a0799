//go:build upgrade

package xds_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/istiodversion"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/hang"
)

// TestAnotherVersion asks an istiod of another version than the planned one, as an image of another release would run.
// The conditions name both versions. `make upgrade` builds this istiod, and runs the test.
func TestAnotherVersion(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*hang.Deadline)
	t.Cleanup(cancel)
	g := gomega.NewWithT(t)
	version, err := startGuest(ctx, t, "pilot-discovery-1.28").askVersion(ctx, t, istiodversion.Identity())
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(version).To(gomega.Equal("1.28.2"))
	conditions := status.ControlPlane(status.Result{
		Version: charts.EmbeddedVersion, Running: status.VersionReported(version), Classes: []model.GatewayClass{{Name: "demo"}},
		Istiod: model.Available, Endpoint: status.EndpointReached(),
	}, status.DegradedSince{}, nil, time.Now())
	available := meta.FindStatusCondition(conditions, status.ControlPlaneAvailable)
	g.Expect(available.Reason).To(gomega.Equal(status.ReasonUnplannedVersion))
	g.Expect(available.Message).To(gomega.HavePrefix("istiod 1.28.2 has been serving since "))
	g.Expect(available.Message).To(gomega.ContainSubstring("although version " + charts.EmbeddedVersion + " is planned"))
}
