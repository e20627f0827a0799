package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/status"
	"github.com/hypergate/hypergate/test/fakeapi"
	"github.com/hypergate/hypergate/test/hang"
)

// TestAnAccountThatLeavesIsATokenProblem checks istiod's service account that is being deleted and does not go. The
// guest still issues tokens for it, and refuses them soon. So none is requested, and the conditions name the cause.
func TestAnAccountThatLeavesIsATokenProblem(t *testing.T) {
	t.Parallel()
	api := fakeapi.New(t)
	r := newTestReconciler(t, clock.RealClock{}, api.Config())
	cfg := r.config
	accounts := fakeapi.Collection{
		Path: "/api/v1/namespaces/" + cfg.GuestNamespace + "/serviceaccounts", APIVersion: "v1", Kind: "ServiceAccount",
	}
	account := func(more string) string {
		return fmt.Sprintf("{metadata: {namespace: %s, name: %s, uid: a, resourceVersion: '7', labels: {%s: %s}%s}}",
			cfg.GuestNamespace, cfg.GuestIstiodName(), model.OwnerLabel, cfg.OwnerValue(model.SideGuest), more)
	}
	api.Put(accounts, account(", deletionTimestamp: 2026-11-21T10:00:00Z, finalizers: [example.com/never]"))
	g := hang.Gomega(t)
	g.Expect(r.guest.Start(klog.NewContext(t.Context(), logr.Discard()), func() {})).To(gomega.Succeed())
	g.Eventually(func() bool { return r.guest.IsAccountLeaving(model.IstiodBearer, model.Credential{}) }).Should(gomega.BeTrue())

	before := ofAccount("a")
	r.memory.secrets.SetCredential(model.IstiodBearer, before)
	e := newExecution(r, observation{})
	r.memory.tokens[model.IstiodBearer].accepted = e.acceptance(before.Token)
	if got := e.currentToken(t.Context(), model.IstiodBearer); got.Token != before.Token {
		t.Errorf("istiod gets the token %q, want the one that it has", got.Token)
	}
	if e.outcome.requeue != 0 {
		t.Errorf("another pass in %s: a watch shows when the account is gone", e.outcome.requeue)
	}
	e.noteToken(model.IstiodBearer)
	const want = "waiting for a token for istiod's service account in the guest (guest side: the account is being deleted, so the " +
		"API server refuses its tokens)"
	k := known{outcome: e.outcome}
	if got := k.waiting().String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, request := range api.Requests(accounts) {
		if strings.HasPrefix(request, "POST") {
			t.Errorf("requested: %s", request)
		}
	}

	api.Put(accounts, account(""))
	g.Eventually(func() bool { return r.guest.IsAccountLeaving(model.IstiodBearer, model.Credential{}) }).Should(gomega.BeFalse())
}

// TestABlockedDeletionCounts checks that an object whose deletion is blocked counts as one that fails, also if a
// removal meets it twice. Nothing is tried again because of it: a watch shows when it is gone.
func TestABlockedDeletionCounts(t *testing.T) {
	blocked := status.Result{Guest: apply.ReportOf(apply.Blocked(apply.ID{}), apply.Waiting(apply.ID{}), apply.Blocked(apply.ID{}))}
	if got := numbersOf(blocked.Guest, nil).Failing; len(got) != 1 || got["DeletionBlocked"] != 1 {
		t.Errorf("failing: %v", got)
	}
	if f := failureOf(blocked, nil); f.err != nil {
		t.Errorf("it is tried again after %v", f.err)
	}
}
