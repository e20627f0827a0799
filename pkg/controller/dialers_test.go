package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
)

// dialers is one way to publish istiod, and how its three clients reach it.
type dialers struct {
	name string
	// publish.Strategy follows from the table. xds is for another party's address, and endpoints is what the cluster
	// allocated.
	publish   model.Publish
	xds       model.HostPort
	plane     model.ControlPlane
	endpoints model.ObservedEndpoints
	probe     Probe

	// hypergate is the address to which it connects by TCP. It is empty if it connects through a relay.
	hypergate string
	// gateways is the address of xDS and of the CA, and sni the name that a server sees of them and of hypergate. An
	// address is not such a name.
	gateways, sni string
	// through is what hypergate creates between them and istiod, in their order.
	through []string
	// admitted are the peers that network policies let through on the way, by port. rights are those in the guest that
	// a connection by a relay needs. Other ways need none.
	admitted, rights []string
}

const (
	xdsByClusterIP = "Service xds-r: ClusterIP 15012, to istiod's 15012"
	webhookURL     = "https://gw-webhook-r.clusters-guest1.svc:443"
)

// routersAdmitted are the peers of a way by a router: HyperShift's router of the hosted control plane, the ingress
// controllers, and the shared ingress. allAdmitted are those of a way that has no router. There, everyone who reaches
// the guest's API server reaches istiod.
func routersAdmitted() []string {
	return []string{
		"istiod's 15012 from pods app=private-router of its namespace",
		"istiod's 15012 from all pods of namespaces network.openshift.io/policy-group=ingress",
		"istiod's 15012 from all pods of namespaces kubernetes.io/metadata.name=hypershift-sharedingress",
	}
}

func allAdmitted() []string {
	return append(routersAdmitted(), "istiod's 15012 from 0.0.0.0/0", "istiod's 15012 from ::/0")
}

// dialersOf returns the rows of each strategy.
func dialersOf() map[model.PublishStrategy][]dialers {
	named := model.HostPort{Host: publishedName}
	bySidecar := []string{
		"Service istiod-relay of the guest: 15012, to the relays' 15012",
		"relays istiod-relay-0, istiod-relay-1, for tunnel.r.hypergate.internal",
		"sidecar, to the relays in openshift-ingress",
	}
	private := aws("Private", "Route")
	private.Services = append(private.Services,
		model.PublishedService{Service: "Ignition", Strategy: "Route", Host: "ignition.apps.guest1.hypershift.local"})
	relay := model.Publish{RelayImage: "registry.example.com/hypergate:1", SidecarImage: "registry.example.com/hypergate:1"}
	tunnelled := dialers{
		name: "the tunnel", publish: relay, plane: aws("Public", "Route"), gateways: "istiod-relay.openshift-ingress.svc:15012",
		sni: "istiod-relay.openshift-ingress.svc", through: bySidecar,
		admitted: []string{
			"the relays' 15012 from pods gateway.networking.k8s.io/gateway-name of namespaces of all names",
			"the relays' 15443 from everywhere",
		},
		rights: []string{
			"ServiceAccount openshift-ingress/istiod-tunnel: get pods/proxy of http:istiod-relay-0:15443, http:istiod-relay-1:15443",
		},
	}
	viaTunnelled, autoTunnelled := tunnelled, tunnelled
	viaTunnelled.name, viaTunnelled.probe = "the tunnel, and an address for the probe, which it does not use", Probe{Via: "10.0.0.1:443"}
	autoTunnelled.name, autoTunnelled.plane = "a private link, with an image for the relays", private
	return map[model.PublishStrategy][]dialers{
		model.PublishAddress: {
			{
				name: "another party", xds: model.HostPort{Host: publishedName, Port: 8443},
				hypergate: publishedName + ":8443", gateways: publishedName + ":8443", sni: publishedName, admitted: routersAdmitted(),
			},
			{
				name: "another address for the probe", xds: model.HostPort{Host: publishedName, Port: 8443},
				probe: Probe{Via: "10.0.0.1:443"}, hypergate: "10.0.0.1:443", gateways: publishedName + ":8443", sni: publishedName,
				admitted: routersAdmitted(),
			},
		},
		model.PublishAuto: append(byAuto(private), autoTunnelled),
		model.PublishRoute: {{
			name: "a Route", publish: model.Publish{At: named},
			hypergate: publishedName + ":443", gateways: publishedName + ":443", sni: publishedName,
			through:  []string{"Route of " + publishedName + ", to Service xds-r", xdsByClusterIP},
			admitted: routersAdmitted(),
		}},
		model.PublishTLSRoute: {{
			name:    "a TLSRoute",
			publish: model.Publish{At: named, Gateway: model.ParentGateway{Namespace: "infra", Name: "edge"}}, endpoints: servedTLSRoutes(),
			hypergate: publishedName + ":443", gateways: publishedName + ":443", sni: publishedName,
			through:  []string{"TLSRoute of " + publishedName + ", to Service xds-r", xdsByClusterIP},
			admitted: routersAdmitted(),
		}},
		model.PublishLoadBalancer: {
			{
				name: "its address", endpoints: model.ObservedEndpoints{LoadBalancer: "192.0.2.44"},
				hypergate: "192.0.2.44:15012", gateways: "192.0.2.44:15012",
				through:  []string{"Service xds-r: LoadBalancer 15012, to istiod's 15012"},
				admitted: allAdmitted(),
			},
			{
				name: "a name for it", publish: model.Publish{At: named}, endpoints: model.ObservedEndpoints{LoadBalancer: "192.0.2.44"},
				hypergate: publishedName + ":15012", gateways: publishedName + ":15012", sni: publishedName,
				through:  []string{"Service xds-r: LoadBalancer 15012, to istiod's 15012"},
				admitted: allAdmitted(),
			},
		},
		model.PublishNodePort: {{
			name: "a node's address", publish: model.Publish{At: model.HostPort{Host: "2001:db8::7"}},
			endpoints: model.ObservedEndpoints{NodePort: 31512}, hypergate: "[2001:db8::7]:31512", gateways: "[2001:db8::7]:31512",
			through:  []string{"Service xds-r: NodePort 15012, to istiod's 15012"},
			admitted: allAdmitted(),
		}},
		model.PublishTunnel: {tunnelled, viaTunnelled},
	}
}

// byAuto returns the rows of --publish=auto without an image for the relays. private is a HostedControlPlane with a
// private link.
func byAuto(private model.ControlPlane) []dialers {
	const linked = "istiod.apps.guest1.hypershift.local"
	return []dialers{
		{
			name: "a load balancer", plane: aws("Public", "LoadBalancer"),
			endpoints: model.ObservedEndpoints{LoadBalancer: "lb.example.com"},
			hypergate: "lb.example.com:15012", gateways: "lb.example.com:15012", sni: "lb.example.com",
			through:  []string{"Service xds-r: LoadBalancer 15012, to istiod's 15012"},
			admitted: allAdmitted(),
		},
		{
			name: "a private link, with a Route of the control plane operator", plane: private,
			endpoints: model.ObservedEndpoints{ControlPlaneRoute: model.FoundRoute{Exists: true, Host: linked}},
			hypergate: "private-router:443", gateways: linked + ":443", sni: linked, admitted: routersAdmitted(),
		},
	}
}

// aws returns a HostedControlPlane on AWS, with the strategy by which its API server is published.
func aws(access, apiServer string) model.ControlPlane {
	return model.ControlPlane{
		Name: "guest1", UID: "7f3a", Platform: "AWS", EndpointAccess: access, InfraID: "guest1-x7",
		Services: []model.PublishedService{{Service: "APIServer", Strategy: apiServer, Host: "api.guest1.example.com"}},
	}
}

func servedTLSRoutes() model.ObservedEndpoints { return model.ObservedEndpoints{TLSRouteVersion: "v1"} }

// TestDialers checks for each strategy how hypergate, the guest's gateways and the guest's API server reach istiod: the
// address, the server name, the CA, what is in between, whom network policies let through, and the rights in the guest.
// A strategy without a row fails.
func TestDialers(t *testing.T) {
	t.Parallel()
	table := dialersOf()
	strategies := append(publish.Strategies(), model.PublishAddress)
	for strategy := range table {
		if !slices.Contains(strategies, strategy) {
			t.Errorf("--publish=%q has rows, but is not a strategy", strategy)
		}
	}
	for _, strategy := range strategies {
		if len(table[strategy]) == 0 {
			t.Errorf("--publish=%q has no row: add how each client reaches istiod", strategy)
		}
		for _, row := range table[strategy] {
			row.publish.Strategy = strategy
			t.Run(fmt.Sprintf("%s, %s", strategy, row.name), func(t *testing.T) {
				t.Parallel()
				row.check(t)
			})
		}
	}
}

func (row dialers) check(t *testing.T) {
	t.Helper()
	d := newTestDecider(t)
	cfg := d.config
	cfg.Publish, cfg.XDS, cfg.NetworkPolicies = row.publish, row.xds, model.HyperShiftPeers()
	source, err := charts.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	seen := model.ManagementObservation{
		Istiod: model.Available, ControlPlane: row.plane, Endpoints: row.endpoints,
		API: model.MgmtAPI{Server: "https://mgmt.example.com:6443"},
	}
	if seen.CA, err = d.newCA(start); err != nil {
		t.Fatal(err)
	}
	guest := model.GuestObservation{
		API: model.GuestAPI{Server: "https://guest.example.com:6443"}, Namespace: model.Present,
		Classes: []model.GatewayClass{{Name: "a"}}, CRDs: othersCRDs(),
	}
	plan, err := desired.NewPlanner(cfg, source).Compute(seen, guest)
	if err != nil {
		t.Fatal(err)
	}
	known, is := plan.Endpoint.(publish.EndpointKnown)
	if !is {
		t.Fatalf("the endpoint is %#v", plan.Endpoint)
	}
	p := planned{t, cfg, row.plane, plan}
	if diff := cmp.Diff(row.through, p.through()); diff != "" {
		t.Errorf("what is between the clients and istiod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(row.admitted, p.admitted()); diff != "" {
		t.Errorf("the peers that network policies let through (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(row.rights, p.rights()); diff != "" {
		t.Errorf("the rights in the guest (-want +got):\n%s", diff)
	}

	r := &Reconciler{config: cfg}
	r.memory.endpointProbe.probe = row.probe
	if got, byTCP := r.address(row.plane, known.At); got != row.hypergate || byTCP != (row.hypergate != "") {
		t.Errorf("hypergate connects to %q, by TCP: %t, want %q", got, byTCP, row.hypergate)
	}
	for _, name := range []string{"discoveryAddress", "caAddress"} {
		if got := p.setting(name); !slices.Equal(got, []string{row.gateways}) {
			t.Errorf("gateways have %s %q, want %s", name, got, row.gateways)
		}
	}
	if got := p.webhookURLs(seen.CA); !slices.Equal(got, []string{webhookURL}) {
		t.Errorf("the guest's API server calls %q, want %s", got, webhookURL)
	}
	row.handshakes(t, p, seen.CA, known.At)
}

// handshakes checks that istiod's certificate is valid for each client: a server has a certificate for the names that
// istiod is configured with, and for no other name.
func (row dialers) handshakes(t *testing.T, p planned, ca pki.CA, published model.HostPort) {
	t.Helper()
	certificate := servingAs(t, ca, p.certificateHosts())
	gateway, _, err := net.SplitHostPort(p.setting("discoveryAddress")[0])
	if err != nil {
		t.Fatal(err)
	}
	webhook, err := url.Parse(p.webhookURLs(ca)[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]struct{ host, sni string }{
		"hypergate":              {published.Host, row.sni},
		"a gateway":              {gateway, row.sni},
		"the guest's API server": {webhook.Hostname(), webhook.Hostname()},
	} {
		here, there := net.Pipe()
		seen := make(chan string, 1)
		server := tls.Server(there, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				seen <- hello.ServerName
				return &certificate, nil
			},
		})
		go func() { _ = server.HandshakeContext(t.Context()) }()
		dial := func(context.Context) (net.Conn, error) { return here, nil }
		about := probeTarget{at: model.HostPort{Host: client.host}, roots: string(ca.Root)}
		if _, err := handshake(t.Context(), overTLS(dial), about, tls.Certificate{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := <-seen; got != client.sni {
			t.Errorf("%s sends the server name %q, want %q", name, got, client.sni)
		}
		_, _ = here.Close(), there.Close()
	}
}

// servingAs returns a certificate for names and addresses, as istiod issues one to itself.
func servingAs(t *testing.T, ca pki.CA, hosts []string) tls.Certificate {
	t.Helper()
	issuer, err := tls.X509KeyPair(ca.Cert, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer.Leaf, key.Public(), issuer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, issuer.Certificate[0]}, PrivateKey: key}
}

// planned reads what clients of istiod follow from a plan.
type planned struct {
	*testing.T
	cfg   model.Config
	plane model.ControlPlane
	plan  desired.Plan
}

// plannedObject is an object of either side.
type plannedObject interface {
	GVK() schema.GroupVersionKind
	Key() types.NamespacedName
	JSON() []byte
}

// decoded returns the only object of a kind and name. It returns false if there is none.
func decoded[T any, O plannedObject](t *testing.T, objects []O, kind, name string) (out T, found bool) {
	t.Helper()
	for _, o := range objects {
		if o.GVK().Kind == kind && o.Key().Name == name {
			if err := json.Unmarshal(o.JSON(), &out); err != nil || found {
				t.Fatalf("%s %s: there are two, or %v", kind, name, err)
			}
			found = true
		}
	}
	return out, found
}

func (p planned) istiod() corev1.PodTemplateSpec {
	p.Helper()
	istiod, _ := decoded[appsv1.Deployment](p.T, p.plan.Workload, "Deployment", p.cfg.IstiodName())
	return istiod.Spec.Template
}

// certificateHosts returns the names of istiod's certificate that hypergate sets.
func (p planned) certificateHosts() []string {
	p.Helper()
	for _, env := range p.istiod().Spec.Containers[0].Env {
		if env.Name == "ISTIOD_CUSTOM_HOST" {
			return strings.Split(env.Value, ",")
		}
	}
	p.Fatal("istiod's certificate has no names")
	return nil
}

// setting returns the different values of a setting in istiod's configuration, from which that of gateways follows.
func (p planned) setting(name string) (out []string) {
	p.Helper()
	found := regexp.MustCompile(`\b` + name + `\W+?(\[?[a-z0-9][a-z0-9.:-]*\]?:[0-9]+)`)
	for _, o := range append(p.plan.Mgmt, p.plan.Workload...) {
		if o.GVK().Kind == "ConfigMap" {
			for _, match := range found.FindAllStringSubmatch(string(o.JSON()), -1) {
				out = append(out, match[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// webhookURLs returns the different servers of istiod's webhooks. Each must be verified by the mesh CA, and lead to a
// Service for istiod's port of webhooks.
func (p planned) webhookURLs(ca pki.CA) (out []string) {
	p.Helper()
	for _, o := range p.plan.Admission {
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		if err := json.Unmarshal(o.JSON(), &configuration); err != nil {
			p.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			if string(webhook.ClientConfig.CABundle) != string(ca.Root) || webhook.ClientConfig.URL == nil {
				p.Fatalf("webhook %s has another CA than the mesh, or no URL", webhook.Name)
			}
			at, err := url.Parse(*webhook.ClientConfig.URL)
			if err != nil {
				p.Fatal(err)
			}
			out = append(out, at.Scheme+"://"+at.Host)
		}
	}
	if got, want := p.service(p.cfg.WebhookService()), "Service gw-webhook-r:  443, to istiod's 15017"; got != want {
		p.Errorf("webhooks lead to %q, want %q", got, want)
	}
	return slices.Compact(out)
}

// service returns a Service of the management side in words, or nothing.
func (p planned) service(name string) string {
	p.Helper()
	service, found := decoded[corev1.Service](p.T, p.plan.Mgmt, "Service", name)
	if !found {
		return ""
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.istiod().Labels)) {
		p.Errorf("Service %s does not lead to istiod", name)
	}
	port := service.Spec.Ports[0]
	return fmt.Sprintf("Service %s: %s %d, to istiod's %s", name, service.Spec.Type, port.Port, port.TargetPort.String())
}

// through returns what hypergate creates between gateways and istiod.
func (p planned) through() (out []string) {
	p.Helper()
	for _, o := range p.plan.Routes {
		u, err := o.Unstructured()
		if err != nil {
			p.Fatal(err)
		}
		spec := string(o.JSON())
		host := regexp.MustCompile(`"(?:host|hostnames)":\[?"([^"]+)"`).FindStringSubmatch(spec)
		if len(host) < 2 || !strings.Contains(spec, `"name":"`+p.cfg.XDSService()+`"`) {
			p.Fatalf("a route without a host or a Service: %s", spec)
		}
		out = append(out, fmt.Sprintf("%s of %s, to Service %s", u.GetKind(), host[1], p.cfg.XDSService()))
	}
	if service := p.service(p.cfg.XDSService()); service != "" {
		out = append(out, service)
	}
	return append(out, p.relays()...)
}

// relays returns the parts of the tunnel.
func (p planned) relays() (out []string) {
	p.Helper()
	relays, found := decoded[appsv1.StatefulSet](p.T, p.plan.Guest, "StatefulSet", model.RelayName)
	if service, is := decoded[corev1.Service](p.T, p.plan.Guest, "Service", model.RelayName); is {
		if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(relays.Spec.Template.Labels)) {
			p.Error("the relays' Service does not lead to them")
		}
		port := service.Spec.Ports[0]
		out = append(out, fmt.Sprintf("Service %s of the guest: %d, to the relays' %s", service.Name, port.Port, port.TargetPort.String()))
	}
	if found {
		var pods []string
		for i := range *relays.Spec.Replicas {
			pods = append(pods, fmt.Sprintf("%s-%d", relays.Name, i))
		}
		name, _ := strings.CutPrefix(relays.Spec.Template.Spec.Containers[0].Args[1], "--tunnel-name=")
		out = append(out, fmt.Sprintf("relays %s, for %s", strings.Join(pods, ", "), name))
	}
	for _, container := range p.istiod().Spec.Containers {
		if namespace, is := strings.CutPrefix(slices.Concat(container.Args, []string{"", ""})[1], "--relay-namespace="); is {
			out = append(out, "sidecar, to the relays in "+namespace)
		}
	}
	return out
}

// othersCRDs are the facts of CRDs that another party installed, so that a plan has none.
func othersCRDs() map[string]crds.Fact {
	out := map[string]crds.Fact{}
	names := crds.GatewayAPI().Names()
	for _, r := range model.KnownIstioResources() {
		names = append(names, r.CRD())
	}
	for _, name := range names {
		out[name] = crds.Fact{Owner: crds.Owner{Kind: crds.ThirdParty, Name: "helm"}, Content: crds.Read}
	}
	return out
}
