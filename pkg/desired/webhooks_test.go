package desired_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
)

// webhookSecret returns the keys of the Secret for a party that writes the webhooks, and whether the plan has it.
func webhookSecret(t *testing.T, cfg model.Config, plan desired.Plan) (map[string][]byte, bool) {
	t.Helper()
	for _, o := range plan.Mgmt {
		if o.GVK().Kind != "Secret" || o.Key().Name != cfg.WebhookSecretName() {
			continue
		}
		var secret struct {
			Data map[string][]byte `json:"data"`
		}
		if err := json.Unmarshal(o.JSON(), &secret); err != nil {
			t.Fatal(err)
		}
		return secret.Data, true
	}
	return nil, false
}

// TestWebhooksOfAnotherParty checks that another party gets exactly the webhooks that hypergate would write, and that
// nothing else changes.
func TestWebhooksOfAnotherParty(t *testing.T) {
	t.Parallel()
	for _, topology := range bothTopologies() {
		for _, injection := range []bool{false, true} {
			cfg := config(topology)
			cfg.SidecarInjection = injection
			mgmt, guest := installed(t), withForeignCRDs(withClasses("openshift-default"))
			before := compute(t, cfg, embedded(t), mgmt, guest)
			if _, is := webhookSecret(t, cfg, before); is {
				t.Errorf("%s: the Secret is planned although hypergate writes the webhooks", topology)
			}
			cfg.Webhooks = model.WebhooksExternal
			after := compute(t, cfg, embedded(t), mgmt, guest)
			if len(after.Admission) != 0 {
				t.Errorf("%s: hypergate still writes %v", topology, after.Admission)
			}
			got, _ := webhookSecret(t, cfg, after)
			checkHandedOut(t, topology, before, got)
			if diff := cmp.Diff(string(mgmt.CA.Root), string(got["ca.crt"])); diff != "" || len(got) != 3 {
				t.Errorf("%s: %d keys, and the roots (-want +got):\n%s", topology, len(got), diff)
			}
			before.Admission = nil
			after.Mgmt = slices.DeleteFunc(after.Mgmt, func(o model.MgmtObject) bool {
				return o.Key().Name == cfg.WebhookSecretName() &&
					o.GVK().Kind == "Secret"
			})
			if diff := cmp.Diff(objectsOf(before), objectsOf(after)); diff != "" {
				t.Errorf("%s: other objects (-managed +external):\n%s", topology, diff)
			}
		}
	}
}

// checkHandedOut compares the configurations that another party gets with those that hypergate would write.
func checkHandedOut(t *testing.T, topology model.Topology, managed desired.Plan, got map[string][]byte) {
	t.Helper()
	wantURL := map[model.Topology]string{
		model.TopologyHosted:     "https://gw-webhook-openshift-gateway:443",
		model.TopologyStandalone: "https://istiod-openshift-gateway.openshift-ingress.svc:443",
	}[topology]
	if string(got["url"]) != wantURL {
		t.Errorf("%s: the URL is %q, want %q", topology, got["url"], wantURL)
	}
	var want, items []map[string]any
	if err := json.Unmarshal(got["configurations.json"], &items); err != nil {
		t.Fatalf("%s: %v", topology, err)
	}
	for _, o := range managed.Admission {
		var object map[string]any
		if err := json.Unmarshal(o.JSON(), &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "metadata")
		want = append(want, object)
	}
	byKind := func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a["kind"]), fmt.Sprint(b["kind"])) }
	slices.SortFunc(want, byKind)
	slices.SortFunc(items, byKind)
	if diff := cmp.Diff(want, items); diff != "" || len(want) == 0 {
		t.Errorf("%s: %d configurations (-managed +handed out):\n%s", topology, len(want), diff)
	}
}

// objectsOf returns the objects of a plan as text.
func objectsOf(p desired.Plan) (out []string) {
	for _, o := range mgmtObjects(p) {
		out = append(out, string(o.JSON()))
	}
	for _, o := range guestObjects(p) {
		out = append(out, string(o.JSON()))
	}
	return out
}

// TestAnotherPartyFollowsARotation checks that the Secret has both roots during a rotation, and that a brought CA is in
// it but not written.
func TestAnotherPartyFollowsARotation(t *testing.T) {
	t.Parallel()
	cfg, mgmt := config(model.TopologyHosted), installed(t)
	cfg.Webhooks = model.WebhooksExternal
	mgmt.CAOwner = model.Theirs
	mgmt.CA.Root = slices.Concat(mgmt.CA.Root, mgmt.CA.Root)
	plan := compute(t, cfg, embedded(t), mgmt, withForeignCRDs(withClasses("a")))
	got, _ := webhookSecret(t, cfg, plan)
	if diff := cmp.Diff(string(mgmt.CA.Root), string(got["ca.crt"])); diff != "" {
		t.Errorf("the roots (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(plan.Mgmt, func(o model.MgmtObject) bool { return o.Key().Name == model.CASecretName }) {
		t.Error("a brought CA is written")
	}
}
