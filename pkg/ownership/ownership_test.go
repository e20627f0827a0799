package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/ownership"
)

// config returns the part of a Config that ownership depends on.
func config(topology model.Topology) model.Config {
	cfg := model.Config{
		Topology:       topology,
		MgmtNamespace:  "clusters-guest1",
		GuestNamespace: "openshift-ingress",
		ControllerName: "openshift.io/gateway-controller/v1",
		Revision:       "openshift-gateway",
	}
	if topology == model.TopologyStandalone {
		cfg.MgmtNamespace = cfg.GuestNamespace
	}
	return cfg
}

const namespaceUID = "6a9e0b52-3c41-4c9e-9b1f-6c2b8a1d0e77"

func hostedWithID(clusterID string) model.ManagementObservation {
	h := model.ManagementObservation{NamespaceUID: namespaceUID}
	h.ControlPlane.ClusterID = clusterID
	return h
}

func TestLeaseNamesDependOnControllerNameAndRevision(t *testing.T) {
	base := config(model.TopologyHosted)
	leases := func(cfg model.Config) (out []string) {
		for _, c := range ownership.Leases(cfg) {
			out = append(out, c.Name)
		}
		return out
	}
	// deploy/rbac/guest/role.yaml allows these by name.
	want := []string{"hypergate-claim-controller-27e2e0b7", "hypergate-claim-revision-openshift-gateway"}
	if diff := cmp.Diff(want, leases(base)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	elsewhere := base
	elsewhere.MgmtNamespace, elsewhere.Topology = "clusters-other", model.TopologyStandalone
	if diff := cmp.Diff(want, leases(elsewhere)); diff != "" {
		t.Errorf("two sides differ: -want +got:\n%s", diff)
	}
	controller, revision := base, base
	controller.ControllerName, revision.Revision = "example.com/Gateway/v1", "other"
	if got := leases(controller); got[0] == want[0] || got[1] != want[1] {
		t.Errorf("another controller name has the Leases %v", got)
	}
	if got := leases(revision); got[0] != want[0] || got[1] == want[1] {
		t.Errorf("another revision has the Leases %v", got)
	}
}

func TestHoldersDoNotRevealTheManagementSide(t *testing.T) {
	cfg := config(model.TopologyHosted)
	for _, h := range []model.ManagementObservation{hostedWithID(""), hostedWithID("0b1c2d3e-cluster")} {
		for _, holder := range ownership.Holders(cfg, h) {
			for _, secret := range []string{cfg.MgmtNamespace, namespaceUID, "0b1c2d3e"} {
				if strings.Contains(holder, secret) {
					t.Errorf("holder %q has %q in it", holder, secret)
				}
			}
			if !strings.HasPrefix(holder, "hosted/openshift-gateway/") {
				t.Errorf("holder %q does not contain topology and revision", holder)
			}
		}
	}
}

func TestHolders(t *testing.T) {
	cfg := config(model.TopologyHosted)
	bare, named := ownership.Holders(cfg, hostedWithID("")), ownership.Holders(cfg, hostedWithID("a-cluster"))
	if len(bare) != 1 || len(named) != 2 || named[1] != bare[0] || named[0] == bare[0] {
		t.Errorf("without a HostedControlPlane %v, with one %v: want the namespace's, too, and the cluster's first", bare, named)
	}
	moved := hostedWithID("a-cluster")
	moved.NamespaceUID = "another"
	if ownership.Holders(cfg, moved)[0] != named[0] {
		t.Error("a hosted cluster that is moved is another installation")
	}
	if none := ownership.Holders(cfg, model.ManagementObservation{}); len(none) != 0 {
		t.Errorf("an unknown namespace holds Leases as %v", none)
	}
	other := cfg
	other.Revision = "other"
	if ownership.Holders(other, hostedWithID(""))[0] == bare[0] {
		t.Error("two revisions are one installation")
	}
	standalone := config(model.TopologyStandalone)
	if got := ownership.Holders(standalone, hostedWithID("a-cluster")); len(got) != 1 {
		t.Errorf("standalone there is no hosted cluster, and yet %v", got)
	}
}

func TestOwnership(t *testing.T) {
	cfg := config(model.TopologyHosted)
	hosted := hostedWithID("a-cluster")
	leases, holders := ownership.Leases(cfg), ownership.Holders(cfg, hosted)
	held := func(i int, holder string) model.HeldLease {
		return model.HeldLease{Name: leases[i].Name, Holder: holder}
	}
	unreadable := errors.New("not allowed to list leases")
	for name, test := range map[string]struct {
		seen model.ObservedLeases
		want ownership.State
	}{
		"unowned": {model.ObservedLeases{}, ownership.Unowned{Missing: leases}},
		"ours": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, holders[0]), held(1, holders[0])}}, ownership.Owned{},
		},
		"ours, from before it had an ID": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, holders[1]), held(1, holders[0])}}, ownership.Owned{},
		},
		"half ours": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, holders[0])}}, ownership.Unowned{Missing: leases[1:]},
		},
		"without a holder": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, ""), held(1, holders[0])}}, ownership.Unowned{Missing: leases[:1]},
		},
		"of another controller name": {
			model.ObservedLeases{Held: []model.HeldLease{{Name: "hypergate-claim-controller-0", Holder: "x"}}},
			ownership.Unowned{Missing: leases},
		},
		"the controller name taken": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, "x"), held(1, holders[0])}},
			ownership.OwnedByOther{By: []ownership.LeaseOfOther{{Lease: leases[0], HeldLease: held(0, "x")}}},
		},
		"the revision taken": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, holders[0]), held(1, "x")}},
			ownership.OwnedByOther{By: []ownership.LeaseOfOther{{Lease: leases[1], HeldLease: held(1, "x")}}},
		},
		"the revision taken, rest free": {
			model.ObservedLeases{Held: []model.HeldLease{held(1, "x")}},
			ownership.OwnedByOther{By: []ownership.LeaseOfOther{{Lease: leases[1], HeldLease: held(1, "x")}}},
		},
		"all taken": {
			model.ObservedLeases{Held: []model.HeldLease{held(0, "x"), held(1, "x")}},
			ownership.OwnedByOther{
				By: []ownership.LeaseOfOther{{Lease: leases[0], HeldLease: held(0, "x")}, {Lease: leases[1], HeldLease: held(1, "x")}},
			},
		},
		"not readable": {model.ObservedLeases{Unknown: unreadable}, ownership.Unknown{Err: unreadable}},
	} {
		got := ownership.Of(cfg, hosted, test.seen)
		if diff := cmp.Diff(test.want, got, cmp.Comparer(errors.Is)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestOwnLeases(t *testing.T) {
	cfg := config(model.TopologyHosted)
	hosted := hostedWithID("")
	leases, holder := ownership.Leases(cfg), ownership.Holders(cfg, hosted)[0]
	ours := model.HeldLease{Name: leases[1].Name, Holder: holder}
	seen := model.ObservedLeases{Held: []model.HeldLease{
		{Name: leases[0].Name, Holder: "x"}, ours, {Name: "hypergate-claim-revision-other", Holder: holder},
	}}
	if diff := cmp.Diff([]model.HeldLease{ours}, ownership.OwnLeases(cfg, hosted, seen)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAnOwnedGuestExplainsTheHandover(t *testing.T) {
	cfg := config(model.TopologyHosted)
	by := model.HeldLease{
		Holder: "hosted/x/\n\x1b\u202e\u2028[12" + strings.Repeat("3", 500), Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	err := ownership.OwnedByOtherError{Namespace: "openshift-ingress", OwnedByOther: ownership.OwnedByOther{
		By: []ownership.LeaseOfOther{{Lease: ownership.Leases(cfg)[0], HeldLease: by}, {Lease: ownership.Leases(cfg)[1], HeldLease: by}},
	}}
	text := err.Error()
	for _, part := range []string{
		"the controller name openshift.io/gateway-controller/v1", "another hypergate (\"hosted/x/    (123", "2026-01-02T03:04:05Z",
		"and the revision openshift-gateway", "stop that hypergate and its istiod",
		"kubectl -n openshift-ingress delete lease hypergate-claim-controller-27e2e0b7 hypergate-claim-revision-openshift-gateway;",
		"--controller-name", "--revision",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if strings.ContainsAny(text, "\n\x1b\u202e\u2028[") || strings.Count(text, "hosted/x/") != 1 || len(text) > 700 {
		t.Errorf("a holder may say anything: %q", text)
	}
}

func TestConflictingControllers(t *testing.T) {
	const finalizer = "its finalizer is on GatewayClass a"
	deployment := ownership.ForeignIstiod{Seen: "Deployment openshift-ingress/istiod-openshift-gateway"}
	istio := "istios.sailoperator.io openshift-gateway"
	istiods := func(owner string) model.ForeignInstallations {
		return model.ForeignInstallations{Istiods: []model.ForeignDeployment{{Name: "istiod-openshift-gateway", Owner: owner}}}
	}
	hosted, standalone := config(model.TopologyHosted), config(model.TopologyStandalone)
	renamed, revised, apart := hosted, hosted, standalone
	apart.MgmtNamespace = "hypergate-system"
	renamed.ControllerName = "example.com/gateways"
	revised.Revision = "mine"
	for name, test := range map[string]struct {
		cfg  model.Config
		seen model.ForeignInstallations
		want []ownership.ConflictingController
	}{
		"none": {hosted, model.ForeignInstallations{}, nil},
		"finalizer": {
			hosted,
			model.ForeignInstallations{Finalized: []string{"a", "b"}},
			[]ownership.ConflictingController{ownership.IngressOperator{Seen: finalizer}},
		},
		"Istio of OpenShift's": {
			hosted,
			model.ForeignInstallations{Istios: []string{"openshift-gateway"}},
			[]ownership.ConflictingController{ownership.IngressOperator{Seen: istio}},
		},
		"Istio of OpenShift's, our revision is another": {
			revised,
			model.ForeignInstallations{Istios: []string{"openshift-gateway"}},
			[]ownership.ConflictingController{ownership.IngressOperator{Seen: istio}},
		},
		"an Istio of our revision": {
			renamed,
			model.ForeignInstallations{Istios: []string{"openshift-gateway"}},
			[]ownership.ConflictingController{ownership.ForeignIstiod{Seen: istio}},
		},
		"the user's own Istio":   {hosted, model.ForeignInstallations{Istios: []string{"default", "mesh"}}, nil},
		"an istiod in the guest": {hosted, istiods(""), []ownership.ConflictingController{deployment}},
		"a standalone hypergate's istiod": {
			hosted, istiods("openshift-gateway.management"), []ownership.ConflictingController{deployment},
		},
		"our own istiod, standalone":         {standalone, istiods("openshift-gateway.management"), nil},
		"the user's istiod, standalone":      {standalone, istiods(""), []ownership.ConflictingController{deployment}},
		"our own without its label is drift": {standalone, istiods(model.Unlabelled), nil},
		"standalone, with a namespace of its own": {
			apart, istiods("openshift-gateway.management"), []ownership.ConflictingController{deployment},
		},
		"but in a guest it is another hypergate's": {hosted, istiods(model.Unlabelled), []ownership.ConflictingController{deployment}},
		"both": {
			hosted,
			model.ForeignInstallations{Finalized: []string{"a"}, Istiods: istiods("").Istiods},
			[]ownership.ConflictingController{ownership.IngressOperator{Seen: finalizer}, deployment},
		},
	} {
		if diff := cmp.Diff(test.want, ownership.Conflicts(test.cfg, test.seen)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestAConflictingControllerIsNamedWithANextStep(t *testing.T) {
	cfg := config(model.TopologyHosted)
	text := ownership.ConflictError{
		Config: cfg,
		Controllers: []ownership.ConflictingController{
			ownership.IngressOperator{Seen: "seen here"}, ownership.ForeignIstiod{Seen: "seen there"},
		},
	}.Error()
	for _, part := range []string{
		"OpenShift's ingress operator", "seen here", "--controller-name", "managementMode: Unmanaged",
		"ingresses.operator.openshift.io cluster", "; an istiod of the revision openshift-gateway", "seen there", "--revision",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if strings.Contains(text, cfg.MgmtNamespace) {
		t.Errorf("%q names the management namespace", text)
	}
}

// TestNamesOfConflictsAreHarmless: the guest chooses the names. A message has no brackets of theirs, no control
// characters, no characters that change the direction of writing, and a limited length.
func TestNamesOfConflictsAreHarmless(t *testing.T) {
	cfg := config(model.TopologyHosted)
	for place, of := range map[string]func(name string) []ownership.ConflictingController{
		"GatewayClass with the finalizer": func(name string) []ownership.ConflictingController {
			return ownership.Conflicts(cfg, model.ForeignInstallations{Finalized: []string{name}})
		},
		"Istio": func(name string) []ownership.ConflictingController {
			cfg := cfg
			cfg.Revision = name // only an Istio of this name is a conflict
			return ownership.Conflicts(cfg, model.ForeignInstallations{Istios: []string{name}})
		},
		"Deployment": func(name string) []ownership.ConflictingController {
			return ownership.Conflicts(cfg, model.ForeignInstallations{Istiods: []model.ForeignDeployment{{Name: name}}})
		},
	} {
		for kind, name := range map[string]string{
			"brackets":             "a [delete everything]",
			"a line break":         "a\nb",
			"a terminal escape":    "a\x1b[2Jb",
			"right to left":        "a\u202eb",
			"a right-to-left mark": "a\u200fb",
			"10 KiB":               strings.Repeat("a", 10<<10),
		} {
			found := of(name)
			if len(found) != 1 {
				t.Fatalf("%s, %s: %d conflicts, want 1", place, kind, len(found))
			}
			seen := seenOf(found[0])
			if !strings.Contains(seen, " a") && !strings.Contains(seen, "/a") || len(seen) > 200 || strings.ContainsAny(seen, "[]") ||
				strings.ContainsFunc(seen, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s, %s: %.300q", place, kind, seen)
			}
		}
	}
}

// seenOf returns how a conflicting controller was recognized.
func seenOf(c ownership.ConflictingController) string {
	switch c := c.(type) {
	case ownership.IngressOperator:
		return c.Seen
	case ownership.ForeignIstiod:
		return c.Seen
	default:
		return ""
	}
}

// TestManyConflictsAreCounted: the guest decides how many there are, and a message describes only the first ones.
func TestManyConflictsAreCounted(t *testing.T) {
	all := make([]ownership.ConflictingController, 1000)
	for i := range all {
		all[i] = ownership.ForeignIstiod{Seen: fmt.Sprintf("Deployment %d", i)}
	}
	text := ownership.ConflictError{Controllers: all}.Error()
	if len(text) > 2<<10 || !strings.Contains(text, "Deployment 2") || strings.Contains(text, "Deployment 3") ||
		!strings.HasSuffix(text, "; and 997 more") {
		t.Errorf("%d bytes: %.300s", len(text), text)
	}
}
