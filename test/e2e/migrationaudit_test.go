package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/audit"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/origin"
	"github.com/hypergate/hypergate/test/traffic"
	"github.com/hypergate/hypergate/test/world"
)

// lockOfDeployments is the Lease of the istiod that deploys Gateways (istio
// pilot/pkg/leaderelection/leaderelection.go).
const lockOfDeployments = "istio-gateway-deployment-" + world.Revision

// originUser is the account of the istiod in the guest.
func originUser() string { return deploy.UserOf(world.GuestNamespace, origin.Deployment) }

// audited checks the guest's audit log since the begin of the story.
func (m *move) audited() {
	m.Helper()
	sent := m.sent()
	if m.Topology == model.TopologyStandalone { // both sides have one audit log
		sent = slices.DeleteFunc(sent, func(r audit.Request) bool { return r.Namespace == m.MgmtNamespace })
	}
	all := succeeded(sent)
	slices.SortStableFunc(all, func(a, b audit.Request) int { return a.At.Compare(b.At) })
	istiods := map[string]int{}
	m.Expect(besideHolder(all, m.GuestUser(), m.IstiodUser(), istiods)).To(gomega.BeEmpty(), "writes to Deployments of gateways")
	m.Expect(notPermitted(all, m.GuestUser(), m.seen.phasesAt)).To(gomega.BeEmpty(), "writes of hypergate that the phase does not have")
	m.Expect(whileNotHeld(all, m.GuestUser())).To(gomega.BeEmpty(), "pod templates that hypergate wrote while an istiod could write them")
	m.Expect(secretsOf(sent, m.GuestUser())).To(gomega.BeEmpty(), "requests of hypergate for Secrets of the guest")
	versions := m.seen.versions()
	m.Expect(beyondServing(all, m.IstiodUser(), func(at time.Time) bool { return servesAt(versions, at) })).To(
		gomega.BeEmpty(), "writes of the hosted istiod while it only serves")
	m.Logf("writes of istiods to Deployments of gateways: %v", istiods)
}

// sent returns the requests to the guest's API server since the begin of the story, also those that were denied.
func (m *move) sent() []audit.Request {
	m.Helper()
	all, err := audit.Read(m.AuditLog(model.SideGuest))
	m.Expect(err).NotTo(gomega.HaveOccurred())
	return slices.DeleteFunc(all, func(r audit.Request) bool { return r.At.Before(m.began) })
}

// requests returns those that succeeded.
func (m *move) requests() []audit.Request {
	m.Helper()
	return succeeded(m.sent())
}

func succeeded(all []audit.Request) []audit.Request {
	return slices.DeleteFunc(slices.Clone(all), func(r audit.Request) bool { return !r.Succeeded() })
}

// besideHolder returns the writes to Deployments of gateways by an istiod that did not hold the lock then, and by
// another client than an istiod and hypergate. Kubernetes' own controllers write the status and the number of a
// rollout. It counts the writes of istiods.
func besideHolder(all []audit.Request, hypergate, hosted string, istiods map[string]int) (out []string) {
	holder := ""
	for _, r := range all {
		isIstiod := r.User == hosted || r.User == originUser()
		switch {
		case !r.IsWrite():
		case r.Resource == "leases" && r.Name == lockOfDeployments && isIstiod:
			holder = r.User
		case !isGatewaysDeployment(r) || strings.HasPrefix(r.User, "system:serviceaccount:kube-system:"):
		case isIstiod:
			istiods[r.User]++
			if r.Manager != world.ControllerName {
				out = append(out, line(r)+": its field manager is "+r.Manager)
			}
			if holder != "" && holder != r.User {
				out = append(out, line(r)+": the lock is held by "+holder)
			}
		case r.User == hypergate:
			// RestoreTemplate, which notPermitted and whileNotHeld judge.
		case !strings.HasPrefix(r.User, "system:") || r.Subresource == "scale": // the administrator of the story
		default:
			out = append(out, line(r))
		}
	}
	return out
}

// isGatewaysDeployment reports whether a request is for the Deployment of a Gateway of the class.
func isGatewaysDeployment(r audit.Request) bool {
	return r.Group == "apps" && r.Resource == "deployments" && strings.HasSuffix(r.Name, "-"+class)
}

func line(r audit.Request) string {
	return fmt.Sprintf("%s %s %s", r.At.Format("15:04:05.000"), r.User, r)
}

// notPermitted returns the writes of hypergate that are not in the list of the phase, and those that no phase has.
func notPermitted(all []audit.Request, hypergate string, phasesAt func(time.Time) []migration.Phase) (out []string) {
	for _, r := range all {
		if r.User != hypergate || !r.IsWrite() {
			continue
		}
		kinds, known := kindsOf(r)
		phases := phasesAt(r.At)
		if r.Resource == "customresourcedefinitions" && r.Verb == "patch" && slices.Contains(phases, migration.Done) {
			continue // the origin is gone, and hypergate applies the CRDs that it leaves, as without a migration
		}
		permitted := slices.ContainsFunc(phases, func(p migration.Phase) bool {
			return slices.ContainsFunc(migration.Permitted(p), func(w migration.Write) bool { return slices.Contains(kinds, w) })
		})
		if !known || len(kinds) > 0 && !permitted {
			out = append(out, fmt.Sprintf("%s, in %v", line(r), phases))
		}
	}
	return out
}

// whileNotHeld returns the writes of hypergate to the Deployments of Gateways that it did not hold then. They are in
// the order in which the API server received them. Only the audit log decides: a watch can see a hold after the next
// write.
func whileNotHeld(all []audit.Request, hypergate string) (out []string) {
	type version struct {
		number int64
		held   bool
	}
	newest := map[string]version{}
	for _, r := range all {
		switch {
		case !r.IsWrite():
		case isGateway(r) && r.Verb == "delete":
			delete(newest, r.Namespace+"/"+r.Name)
		case isGateway(r):
			gateway, _ := gatewayAfter(r) // what cannot be read is not held
			number, _ := strconv.ParseInt(gateway.ResourceVersion, 10, 64)
			// A write of the status can be received after a hold, and be done before it.
			if key := r.Namespace + "/" + r.Name; number >= newest[key].number {
				newest[key] = version{number, isOwnHold(gateway)}
			}
		case r.User == hypergate && isGatewaysDeployment(r):
			if key := r.Namespace + "/" + strings.TrimSuffix(r.Name, "-"+class); !newest[key].held {
				out = append(out, line(r))
			}
		}
	}
	return out
}

// isGateway reports whether a request is for a Gateway of Gateway API.
func isGateway(r audit.Request) bool {
	return r.Group == "gateway.networking.k8s.io" && r.Resource == "gateways"
}

// gatewayAfter returns the Gateway after a write. It fails if the audit log does not have it.
func gatewayAfter(r audit.Request) (out metav1.PartialObjectMetadata, err error) {
	err = json.Unmarshal(r.Object, &out)
	return out, err
}

func isOwnHold(gateway metav1.PartialObjectMetadata) bool {
	return gateway.Annotations[model.HoldAnnotation] == model.HoldValue(world.Revision)
}

// isHeldAfter reports whether hypergate holds a Gateway after a write. hypergate's writes change nothing else of it, so
// one after which it is not held is a release. read is false if the audit log does not have the Gateway.
func isHeldAfter(r audit.Request) (held, read bool) {
	gateway, err := gatewayAfter(r)
	return isOwnHold(gateway), err == nil
}

// kindsOf returns which writes of a migration a request can be. It can be none of them, if hypergate also sends it
// without a migration. known is false for all others: those that hypergate must not send while there is an origin.
func kindsOf(r audit.Request) (kinds []migration.Write, known bool) {
	switch of := r.Resource; {
	case strings.HasPrefix(r.Verb, "delete") && !isHypergates(r):
		return nil, false
	case isGateway(r) && r.Subresource == "":
		held, read := isHeldAfter(r)
		if held {
			return []migration.Write{migration.WriteHold}, read
		}
		return []migration.Write{migration.WriteRelease}, read
	case of == "deployments" && r.Name == origin.Deployment:
		return []migration.Write{migration.WriteReplicas}, true
	case of == "deployments" && isGatewaysDeployment(r):
		return []migration.Write{migration.WriteTemplate}, true
	case of == "validatingwebhookconfigurations" && r.Name == origin.ValidatingWebhook:
		return []migration.Write{migration.WriteWebhook}, true
	case isHypergates(r), of == "gatewayclasses" && r.Subresource == "status":
		return nil, of != "customresourcedefinitions"
	case of == "namespaces" && r.Name == world.GuestNamespace, of == "selfsubjectaccessreviews", of == "events":
		return nil, true
	default:
		return nil, false // also CRDs: those of the origin stay the origin's
	}
}

// isHypergates reports whether a request is for an object of hypergate's own, which includes those of the tunnel.
func isHypergates(r audit.Request) bool {
	return strings.HasPrefix(r.Name, "hypergate-") || r.Name == model.RelayName || r.Name == model.TunnelAccountName
}

// secretsOf returns the requests of a user for Secrets.
func secretsOf(all []audit.Request, user string) (out []string) {
	for _, r := range all {
		if r.User == user && r.Resource == "secrets" {
			out = append(out, line(r))
		}
	}
	return out
}

// TestAuditOfMigrations checks that the audit of the stories finds what it looks for. It needs no cluster.
func TestAuditOfMigrations(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	hosted, hypergate := deploy.UserOf(world.GuestNamespace, world.GuestIstiod), deploy.UserOf(world.GuestNamespace, deploy.Account)
	write := func(user, resource, name string) audit.Request {
		group, namespace, manager := "", world.GuestNamespace, "hypergate"
		if resource == "deployments" {
			group, manager = "apps", world.ControllerName
		}
		return audit.Request{
			User: user, Verb: "patch", Group: group, Resource: resource, Namespace: namespace, Name: name, Code: 200, Manager: manager,
		}
	}
	gateway, lock := "edge-"+class, lockOfDeployments
	istiods := map[string]int{}
	good := []audit.Request{
		write(originUser(), "leases", lock), write(originUser(), "deployments", gateway),
		write(hosted, "leases", lock), write(hosted, "deployments", gateway), write("admin", "deployments", gateway),
	}
	g.Expect(besideHolder(good, hypergate, hosted, istiods)).To(gomega.BeEmpty())
	g.Expect(istiods).To(gomega.Equal(map[string]int{originUser(): 1, hosted: 1}))
	for name, bad := range map[string]audit.Request{
		"the lock is held by":      write(originUser(), "deployments", gateway),
		"patch deployments.apps":   write("system:serviceaccount:default:other", "deployments", gateway),
		"its field manager is own": func() audit.Request { r := write(hosted, "deployments", gateway); r.Manager = "own"; return r }(),
	} {
		g.Expect(besideHolder(append(slices.Clone(good), bad), hypergate, hosted, istiods)).To(
			gomega.ConsistOf(gomega.ContainSubstring(name)), name)
	}

	in := func(phase migration.Phase) func(time.Time) []migration.Phase {
		return func(time.Time) []migration.Phase { return []migration.Phase{phase} }
	}
	hold, replicas := writeToGateway(hypergate, "", "edge", 9, ownHold), write(hypergate, "deployments", origin.Deployment)
	own := write(hypergate, "clusterroles", world.GuestIstiod)
	crd := write(hypergate, "customresourcedefinitions", "gateways.gateway.networking.k8s.io")
	deleted := hold
	deleted.Verb = "delete"
	g.Expect(notPermitted([]audit.Request{hold, own}, hypergate, in(migration.Hold))).To(gomega.BeEmpty())
	g.Expect(notPermitted([]audit.Request{replicas, own}, hypergate, in(migration.Park))).To(gomega.BeEmpty())
	relay, sidecar := write(hypergate, "statefulsets", model.RelayName), write(hypergate, "roles", model.TunnelAccountName)
	g.Expect(notPermitted([]audit.Request{relay, sidecar}, hypergate, in(migration.StandBy))).To(gomega.BeEmpty())
	for _, bad := range []audit.Request{
		replicas, write(hypergate, "deployments", gateway), crd, deleted, write(hypergate, "secrets", "s"),
	} {
		g.Expect(notPermitted([]audit.Request{bad}, hypergate, in(migration.Hold))).To(gomega.HaveLen(1), bad.String())
	}
	g.Expect(notPermitted([]audit.Request{crd}, hypergate, in(migration.Done))).To(gomega.BeEmpty())
	denied := write(hypergate, "secrets", "s")
	denied.Verb, denied.Code = "get", 403
	g.Expect(secretsOf([]audit.Request{write(hypergate, "secrets", "s"), denied, write(originUser(), "secrets", "s"), hold}, hypergate)).To(
		gomega.HaveLen(2), "a denied read of a Secret counts")
	g.Expect(succeeded([]audit.Request{hold, denied})).To(gomega.Equal([]audit.Request{hold}), "a denied write changes nothing")
}

// ownHold is the value with which hypergate holds Gateways.
var ownHold = model.HoldValue(world.Revision)

// writeToGateway returns a write after which a Gateway has a version and a hold. An empty hold is none.
func writeToGateway(user, subresource, name string, version int, hold string) audit.Request {
	annotations := ""
	if hold != "" {
		annotations = fmt.Sprintf(`,"annotations":{%q:%q}`, model.HoldAnnotation, hold)
	}
	return audit.Request{
		User: user, Verb: "patch", Group: "gateway.networking.k8s.io", Resource: "gateways", Subresource: subresource,
		Namespace: world.GuestNamespace, Name: name, Code: 200, Manager: "hypergate",
		Object: fmt.Appendf(nil, `{"kind":"Gateway","metadata":{"resourceVersion":"%d"%s}}`, version, annotations),
	}
}

// TestWritesOfPhases checks in which phases a hold, a release, and writes of CRDs are permitted.
func TestWritesOfPhases(t *testing.T) {
	t.Parallel()
	hypergate := deploy.UserOf(world.GuestNamespace, deploy.Account)
	hold, release := writeToGateway(hypergate, "", "edge", 9, ownHold), writeToGateway(hypergate, "", "edge", 10, "")
	foreign, unread, istio := writeToGateway(hypergate, "", "edge", 9, "1000"), hold, hold
	unread.Object, istio.Group = nil, "networking.istio.io"
	crd := func(verb string) audit.Request {
		return audit.Request{
			User: hypergate, Verb: verb, Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions",
			Name: "wasmplugins.extensions.istio.io", Code: 200,
		}
	}
	permitted := func(r audit.Request) (out []migration.Phase) {
		for _, phase := range migration.Phases() {
			at := func(time.Time) []migration.Phase { return []migration.Phase{phase} }
			if len(notPermitted([]audit.Request{r}, hypergate, at)) == 0 {
				out = append(out, phase)
			}
		}
		return out
	}
	for name, test := range map[string]struct {
		request audit.Request
		in      []migration.Phase
	}{
		"a hold":                              {hold, []migration.Phase{migration.Hold, migration.Lead, migration.Roll}},
		"a release":                           {release, []migration.Phase{migration.Roll, migration.Park}},
		"the hold of another client stays":    {foreign, []migration.Phase{migration.Roll, migration.Park}},
		"the audit log does not have it":      {unread, nil},
		"another kind with the name":          {istio, nil},
		"a CRD is applied":                    {crd("patch"), []migration.Phase{migration.Done}},
		"a CRD is created without an apply":   {crd("create"), nil},
		"a CRD is replaced":                   {crd("update"), nil},
		"a CRD is deleted":                    {crd("delete"), nil},
		"all CRDs are deleted in one request": {crd("deletecollection"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gomega.NewWithT(t).Expect(permitted(test.request)).To(gomega.Equal(test.in))
		})
	}
}

// TestTemplatesOfHeldGateways checks that a pod template that hypergate writes needs a hold before it.
func TestTemplatesOfHeldGateways(t *testing.T) {
	t.Parallel()
	hypergate := deploy.UserOf(world.GuestNamespace, deploy.Account)
	hold, other := writeToGateway(hypergate, "", "edge", 9, ownHold), writeToGateway(hypergate, "", "other", 9, ownHold)
	foreign, release := writeToGateway("admin", "", "edge", 9, "1000"), writeToGateway("admin", "", "edge", 10, "")
	status, older := writeToGateway(originUser(), "status", "edge", 10, ownHold), writeToGateway(originUser(), "status", "edge", 8, "")
	template := audit.Request{
		User: hypergate, Verb: "patch", Group: "apps", Resource: "deployments", Namespace: world.GuestNamespace,
		Name: "edge-" + class, Code: 200,
	}
	istio, deleted, unread, istiods := hold, hold, hold, template
	istio.Group, deleted.Verb, unread.Object, istiods.User = "networking.istio.io", "delete", nil, originUser()
	for name, test := range map[string]struct {
		all []audit.Request
		bad int
	}{
		"held":                                 {[]audit.Request{hold, template, template}, 0},
		"held after a release":                 {[]audit.Request{release, writeToGateway(hypergate, "", "edge", 11, ownHold), template}, 0},
		"status, written with the hold":        {[]audit.Request{hold, status, template}, 0},
		"status, written before the hold":      {[]audit.Request{hold, older, template}, 0},
		"an istiod, which the lock judges":     {[]audit.Request{istiods}, 0},
		"never held":                           {[]audit.Request{template}, 1},
		"held too late":                        {[]audit.Request{template, hold}, 1},
		"released before":                      {[]audit.Request{hold, release, template}, 1},
		"another Gateway is held":              {[]audit.Request{other, template}, 1},
		"held by another client":               {[]audit.Request{foreign, template}, 1},
		"another kind with the name":           {[]audit.Request{istio, template}, 1},
		"the Gateway was deleted":              {[]audit.Request{hold, deleted, template}, 1},
		"the audit log does not have the hold": {[]audit.Request{unread, template}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gomega.NewWithT(t).Expect(whileNotHeld(test.all, hypergate)).To(gomega.HaveLen(test.bad))
		})
	}
}

// TestFailuresOfDeletedGateways checks that a failure before a Gateway was deleted is not excused.
func TestFailuresOfDeletedGateways(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &move{deleted: map[string]time.Time{"gone": at}}
	for name, test := range map[string]struct {
		stream       string
		began, ended time.Duration
		excused      bool
	}{
		"after":                     {"gone, kept", time.Second, 2 * time.Second, true},
		"under way":                 {"gone, download", -time.Second, time.Millisecond, true},
		"before":                    {"gone, kept", -2 * time.Second, -time.Millisecond, false},
		"another Gateway":           {"gone-too, kept", time.Second, 2 * time.Second, false},
		"a stream without its name": {"HTTP, kept", time.Second, 2 * time.Second, false},
	} {
		f := traffic.Failure{Stream: test.stream, Began: at.Add(test.began), Ended: at.Add(test.ended)}
		gomega.NewWithT(t).Expect(m.isDeleted(f)).To(gomega.Equal(test.excused), name)
	}
}

// TestFailuresWithoutXDS checks which failures are those of endpoints that are out of date.
func TestFailuresWithoutXDS(t *testing.T) {
	t.Parallel()
	lost := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	back := lost.Add(20 * time.Second)
	s := &seen{away: []span{{lost, back}}}
	for name, c := range map[string]struct {
		began, ended time.Time
		want         bool
	}{
		"it failed before":                       {lost.Add(-2 * time.Second), lost.Add(-time.Second), false},
		"it began before, and failed meanwhile":  {lost.Add(-time.Second), lost.Add(time.Second), true},
		"it began meanwhile, and failed later":   {back.Add(-time.Second), back.Add(29 * time.Second), true},
		"it began before agents connected again": {back.Add(14 * time.Second), back.Add(24 * time.Second), true},
		"it began after that":                    {back.Add(16 * time.Second), back.Add(17 * time.Second), false},
	} {
		if got := s.metNoXDS(traffic.Failure{Began: c.began, Ended: c.ended}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestEndingsOfPods checks that the first order to end counts, also if a watch saw it later or not at all.
func TestEndingsOfPods(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	deleted := func(name string, after time.Duration) audit.Request {
		return audit.Request{Verb: "delete", Resource: "pods", Name: name, At: at.Add(after)}
	}
	s := &seen{ending: map[string]time.Time{"late": at.Add(time.Minute), "unknown": at}}
	s.readEndings([]audit.Request{deleted("late", time.Second), deleted("missed", time.Second), deleted("missed", 16*time.Second)})
	g.Expect(s.ending).To(gomega.Equal(map[string]time.Time{
		"late": at.Add(time.Second), "missed": at.Add(time.Second), "unknown": at,
	}))
}
