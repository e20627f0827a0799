package migration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/migration"
)

// TestLeftovers checks what a finished migration names for each way in which the origin was installed.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	secret, roots := "Secret openshift-ingress/istio-ca-secret", "ConfigMap istio-ca-root-cert"
	subscription := "Subscription openshift-operators/servicemeshoperator3"
	release, rights := "Secret openshift-ingress/sh.helm.release.v1.openshift-gateway-istiod", "ClusterRole hypergate-migration"
	for name, tc := range map[string]struct {
		origin migration.OriginFacts
		want   []string
		seen   string
	}{
		"without a Subscription": {want: []string{secret, roots, release, rights}},
		"with a Subscription": {
			origin: migration.OriginFacts{Subscription: "servicemeshoperator3"}, seen: subscription,
			want: []string{secret, roots, release, rights, subscription},
		},
	} {
		i := migration.Inventory{Revision: "openshift-gateway", Namespace: "openshift-ingress", Origin: tc.origin}
		var got []string
		for _, l := range i.Leftovers() {
			got = append(got, l.Object.String())
			if l.Seen != (l.Object.String() == tc.seen) {
				t.Errorf("%s: %s seen is %v", name, l.Object, l.Seen)
			}
			if l.Message == "" || l.Remover == "" || l.NextStep == "" || strings.HasSuffix(l.NextStep, ".") {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if strings.Join(got, ", ") != strings.Join(tc.want, ", ") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestOnlyAFinishedMigrationReportsLeftovers checks that a report has them once the origin is removed, and not before.
func TestOnlyAFinishedMigrationReportsLeftovers(t *testing.T) {
	t.Parallel()
	left := migration.Inventory{Revision: "openshift-gateway", Namespace: "openshift-ingress"}.Leftovers()
	gone := func(s *situation) { s.e.Origin = migration.Origin{}; s.e.Hosted.Mode = migration.HostedAlone }
	for name, tc := range map[string]struct {
		s    situation
		want int
	}{
		"parked":   {parked(), 0},
		"finished": {parked().with(gone), len(left)},
	} {
		s := tc.s.with(func(s *situation) { s.e.Leftovers = left })
		if r := reported(t, s, migration.Report{}, start.Add(time.Minute)); len(r.Leftovers) != tc.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
