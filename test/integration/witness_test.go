package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// slowPickup is how long istiod may use a token after its Secret has another one: 90 seconds of a kubelet, and 50 of
// client-go.
const slowPickup = 140 * time.Second

// witness watches an installation that moves. It records each moment in which something is missing: a validating
// webhook for what istiod serves, istiod's Deployment, or the rights of the token that istiod uses.
type witness struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	missing []string
	// checks counts what was looked at: events of webhooks and Deployments, and reviews of istiod's rights. tokens
	// counts the tokens that istiod used: the first one, the renewed one, and the one of the new account.
	checks, tokens int
}

// witness begins to watch.
func (d *deployed) witness() *witness {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cancel: cancel}
	d.Cleanup(func() { cancel(); w.done.Wait() })
	webhooks := d.guest.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	deployments := d.mgmt.AppsV1().Deployments(d.cfg.MgmtNamespace)
	seen, err := webhooks.List(ctx, metav1.ListOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	there := map[string]bool{}
	for i := range seen.Items {
		there[seen.Items[i].Name] = selects(&seen.Items[i], d.cfg.Revision)
	}
	d.Expect(there).To(gomega.ContainElement(true), "the witness knows a webhook that it must not miss")
	events, err := webhooks.Watch(ctx, metav1.ListOptions{ResourceVersion: seen.ResourceVersion})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	w.done.Go(func() { w.watchWebhooks(ctx, events, there, d.cfg.Revision) })
	list, err := deployments.List(ctx, metav1.ListOptions{})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	changes, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	d.Expect(err).NotTo(gomega.HaveOccurred())
	w.done.Go(func() { w.watchDeployments(ctx, changes, d.cfg.IstiodName()) })
	w.done.Go(func() { w.playIstiod(ctx, d) })
	return w
}

// end stops watching and reports what was missing.
func (w *witness) end(t *testing.T) {
	t.Helper()
	w.cancel()
	w.done.Wait()
	for _, m := range w.missing {
		t.Error(m)
	}
	t.Logf("%d checks, %d tokens of istiod", w.checks, w.tokens)
	if w.checks < 100 || w.tokens < 3 {
		t.Error("the witness has not seen the move")
	}
}

// note counts a check, and keeps the problem that it found, unless that is empty.
func (w *witness) note(problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checks++
	if problem != "" && len(w.missing) < 10 {
		w.missing = append(w.missing, time.Now().Format(time.TimeOnly)+" "+problem)
	}
}

// ended notes a watch that ended before the witness did.
func (w *witness) ended(ctx context.Context, what string, event watch.Event) {
	if ctx.Err() == nil {
		w.note(fmt.Sprintf("the watch of %s ended: %v", what, event.Object))
	}
}

// selects reports whether a webhook configuration checks new DestinationRules of a revision.
func selects(c *admissionregistrationv1.ValidatingWebhookConfiguration, revision string) bool {
	for _, webhook := range c.Webhooks {
		selector, err := metav1.LabelSelectorAsSelector(webhook.ObjectSelector)
		if err != nil || !selector.Matches(labels.Set{"istio.io/rev": revision}) || len(webhook.ClientConfig.CABundle) == 0 {
			continue
		}
		for _, rule := range webhook.Rules {
			for _, resource := range rule.Resources {
				if rule.APIGroups[0] == "networking.istio.io" && resource == "destinationrules" {
					return true
				}
			}
		}
	}
	return false
}

func (w *witness) watchWebhooks(ctx context.Context, events watch.Interface, there map[string]bool, revision string) {
	for event := range events.ResultChan() {
		c, is := event.Object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		if !is {
			w.ended(ctx, "webhooks", event)
			return
		}
		there[c.Name] = event.Type != watch.Deleted && selects(c, revision)
		problem := fmt.Sprintf("no webhook selects DestinationRules after the event %s of %s", event.Type, c.Name)
		for _, selected := range there {
			if selected {
				problem = ""
			}
		}
		w.note(problem)
	}
}

func (w *witness) watchDeployments(ctx context.Context, events watch.Interface, name string) {
	for event := range events.ResultChan() {
		d, is := event.Object.(*appsv1.Deployment)
		switch {
		case !is:
			w.ended(ctx, "Deployments", event)
			return
		case d.Name == name && event.Type == watch.Deleted:
			w.note("istiod's Deployment was deleted")
		case d.Name == name && (*d.Spec.Replicas == 0 || d.DeletionTimestamp != nil):
			w.note("istiod's Deployment has no pods")
		default:
			w.note("")
		}
	}
}

// alwaysMarked watches until end is called, and then checks that the guest always had a marker of the default revision.
// Without one, istiod ignores Gateways and routes without the label of its revision.
func (d *deployed) alwaysMarked() (end func()) {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	services := d.guest.CoreV1().Services(d.cfg.GuestNamespace)
	options := metav1.ListOptions{LabelSelector: "istio.io/tag=default,istio.io/rev=" + d.cfg.Revision}
	seen, err := services.List(ctx, options)
	d.Expect(err).NotTo(gomega.HaveOccurred())
	markers := map[string]bool{}
	for i := range seen.Items {
		markers[seen.Items[i].Name] = true
	}
	d.Expect(markers).NotTo(gomega.BeEmpty(), "there is a marker to begin with")
	options.ResourceVersion = seen.ResourceVersion
	events, err := services.Watch(ctx, options)
	d.Expect(err).NotTo(gomega.HaveOccurred())
	w := &witness{cancel: cancel}
	w.done.Go(func() {
		for event := range events.ResultChan() {
			service, is := event.Object.(*corev1.Service)
			if !is {
				w.ended(ctx, "markers", event)
				return
			}
			if event.Type == watch.Deleted {
				delete(markers, service.Name)
			} else {
				markers[service.Name] = true
			}
			if len(markers) == 0 {
				w.note("the guest has no marker of the default revision after " + service.Name + " was deleted")
			} else {
				w.note("")
			}
		}
	})
	d.Cleanup(func() { cancel(); w.done.Wait() })
	checks := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.checks
	}
	return func() {
		d.Helper()
		d.Eventually(checks).Should(gomega.BeNumerically(">", 0), "a marker of another name was made")
		cancel()
		w.done.Wait()
		d.Expect(w.missing).To(gomega.BeEmpty())
	}
}

// playIstiod uses istiod's token as istiod does, which reads a new one late. It asks the guest ten times a second
// whether the token allows what istiod does.
func (w *witness) playIstiod(ctx context.Context, d *deployed) {
	type pending struct {
		token string
		from  time.Time
	}
	inUse := d.istiodsToken().Token //nolint:contextcheck // the test's own context, which ends later
	var next []pending
	last := inUse
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	w.tokens = 1
	for {
		now := d.istiodsToken().Token //nolint:contextcheck // see above
		if now != "" && now != last {
			next, last = append(next, pending{now, time.Now().Add(slowPickup)}), now
		}
		if len(next) > 0 && time.Now().After(next[0].from) {
			inUse, next = next[0].token, next[1:]
			w.tokens++
		}
		if problem := refused(ctx, d, inUse); ctx.Err() == nil {
			w.note(problem)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refused returns what a token of istiod is not allowed to do, or nothing.
func refused(ctx context.Context, d *deployed, token string) string {
	config := rest.AnonymousClientConfig(d.guestConfig)
	config.BearerToken, config.QPS = token, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err.Error()
	}
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "watch", Resource: "secrets"},
		{Verb: "update", Resource: "leases", Group: "coordination.k8s.io", Namespace: d.cfg.GuestNamespace},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return "istiod's token: " + err.Error()
		}
		if !got.Status.Allowed {
			return "istiod's token does not allow to " + a.Verb + " " + a.Resource
		}
	}
	return ""
}
