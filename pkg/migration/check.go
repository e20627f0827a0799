package migration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/model"
)

// Severity is whether a finding stops a migration.
type Severity string

// The severities.
const (
	Blocker Severity = "Blocker"
	Warning Severity = "Warning"
)

// Code identifies a row of the table of the check.
type Code string

// The codes of blockers.
const (
	OneNamespace       Code = "OneNamespace"
	AddressNotAsked    Code = "AddressNotAsked"
	OriginMissing      Code = "OriginMissing"
	OriginChanging     Code = "OriginChanging"
	OriginUnknown      Code = "OriginUnknown"
	VersionUnknown     Code = "VersionUnknown"
	OriginNewer        Code = "OriginNewer"
	OriginUntested     Code = "OriginUntested"
	AlphaResources     Code = "AlphaResources"
	IgnoredResources   Code = "IgnoredResources"
	SidecarsInUse      Code = "SidecarsInUse"
	OtherRoot          Code = "OtherRoot"
	OtherAddress       Code = "OtherAddress"
	ForeignHold        Code = "ForeignHold"
	SkipImpossible     Code = "SkipImpossible"
	SecondDeployment   Code = "SecondDeployment"
	InvalidAnnotation  Code = "InvalidAnnotation"
	TooManyGateways    Code = "TooManyGateways"
	ProxyLost          Code = "ProxyLost"
	MissingPermissions Code = "MissingPermissions"
)

// The codes of warnings.
const (
	SinglePod       Code = "SinglePod"
	StatusLockMoved Code = "StatusLockMoved"
	OriginRolling   Code = "OriginRolling"
	OriginNotServed Code = "OriginNotServed"
	CAPluggedIn     Code = "CAPluggedIn"
	GatewayNotReady Code = "GatewayNotReady"
	GatewaySkipped  Code = "GatewaySkipped"
	ClassMissing    Code = "ClassMissing"
)

// Finding is a row of the check's table that applies.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Object is the first object that the finding is about, and More how many others there are.
	Object Object `json:"object"`
	More   int    `json:"more,omitempty"`
	// Message says what was found, and NextStep what to do.
	Message  string `json:"message"`
	NextStep string `json:"nextStep"`
}

// row is a row of the table. find returns the objects to which it applies. The message can have one %s: the detail.
type row struct {
	severity Severity
	code     Code
	message  string
	next     string
	find     func(Inventory) (objects []Object, detail string)
	// waived reports whether a person accepts it. Nil: it cannot be accepted.
	waived func(Waivers) bool
}

// testedMinors are the minors of origins from which migrations are intended. Stories must play a migration from each
// before one can be carried out.
func testedMinors() []int { return []int{28, 29} }

// testedVersions names the minors.
func testedVersions() string {
	minors := testedMinors()
	names := make([]string, 0, len(minors))
	for _, minor := range minors {
		names = append(names, fmt.Sprintf("1.%d", minor))
	}
	return strings.Join(names, " or ")
}

const (
	// followsFrom is the first minor whose followers do not write status of Gateways. alphaServedFrom is the first one
	// that serves TLSRoutes and ListenerSets without alpha features.
	followsFrom, alphaServedFrom = 27, 30
)

// Run returns the findings of the check: blockers first, each in the order of the table.
func Run(i Inventory, accepted Waivers) []Finding {
	var out []Finding
	for _, r := range slices.Concat(originRows(), resourceRows(), gatewayRows(), warningRows()) {
		if r.waived != nil && r.waived(accepted) {
			continue
		}
		found, detail := r.find(i)
		if len(found) == 0 {
			continue
		}
		message := r.message
		if strings.Contains(message, "%s") {
			message = fmt.Sprintf(message, detail)
		}
		out = append(out, Finding{
			Severity: r.severity, Code: r.code, Object: found[0], More: len(found) - 1, Message: message, NextStep: r.next,
		})
	}
	return out
}

// istiod returns the origin's Deployment as an object.
func (i Inventory) istiod() Object {
	return Object{Kind: "Deployment", Namespace: i.Namespace, Name: "istiod-" + i.Revision}
}

// version returns the origin's version. It is the zero value if it is not known.
func (i Inventory) version() Version {
	if i.Origin.Deployment == nil {
		return Version{}
	}
	return i.Origin.Deployment.Version
}

// onIstiod returns a find function for a row about the origin's Deployment.
func onIstiod(applies func(Inventory) bool, detail func(Inventory) string) func(Inventory) ([]Object, string) {
	return func(i Inventory) ([]Object, string) {
		if !applies(i) {
			return nil, ""
		}
		return []Object{i.istiod()}, detail(i)
	}
}

// onGateways returns a find function for a row about Gateways. The detail is that of the first one.
func onGateways(applies func(Inventory, InventoryGateway) bool, detail func(InventoryGateway) string) func(Inventory) ([]Object, string) {
	return func(i Inventory) (out []Object, first string) {
		for _, g := range i.Gateways {
			if !applies(i, g) {
				continue
			}
			if len(out) == 0 {
				first = detail(g)
			}
			out = append(out, Object{Kind: "Gateway", Namespace: g.Key.Namespace, Name: g.Key.Name})
		}
		return out, first
	}
}

func nothing(Inventory) string { return "" }

func originRows() []row {
	known := func(i Inventory) bool { return i.version() != Version{} }
	return []row{
		{
			Blocker, OneNamespace, "both istiods would have the same name in one namespace",
			"run hypergate with --namespace, in a namespace of its own",
			onIstiod(func(i Inventory) bool { return i.OneNamespace }, nothing), nil,
		},
		{
			Blocker, AddressNotAsked, "with --publish-probe=off, hypergate is not to connect to the published address of the hosted " +
				"istiod, where it asks which pods are connected",
			"let the management cluster reach that address, and set --publish-probe to another value: docs/reference/publishing.md",
			onIstiod(func(i Inventory) bool { return i.AddressNotAsked }, nothing), nil,
		},
		{
			Blocker, OriginMissing, "the guest has no istiod of this revision, so there is nothing to migrate",
			"check --revision and --guest-namespace; remove an istiod that another hypergate has left there; " +
				"without an istiod in the guest, hypergate run needs no migration",
			onIstiod(func(i Inventory) bool { return i.Origin.Kind() == NoOrigin }, nothing), nil,
		},
		{
			Blocker, OriginChanging, "OpenShift's ingress operator replaces the Sail operator by its own installation: %s",
			"wait until it is done; if it does not end, check the Sail operator in the namespace openshift-operators",
			onIstiod(func(i Inventory) bool { return i.Origin.Kind() == Changing }, evidenceOfBoth), nil,
		},
		{
			Blocker, OriginUnknown, "it is not known who installed istiod: neither the Sail operator, nor the ingress operator, nor Helm",
			"replace the istiod by an installation of one of these, or move the Gateways by hand",
			onIstiod(func(i Inventory) bool {
				return i.Origin.isUndeployed() || i.Origin.Kind() == OtherOrigin
			}, nothing), nil,
		},
		{
			Blocker, VersionUnknown, "the version of istiod is not known: its Deployment has it in no label and in no tag of an image",
			"set the label app.kubernetes.io/version of the Deployment",
			onIstiod(func(i Inventory) bool { return i.Origin.Deployment != nil && !known(i) }, nothing), nil,
		},
		{
			Blocker, OriginNewer, "istiod in the guest is newer than the hosted one: %s",
			"wait for a version of hypergate with this minor of Istio, or accept an older one with --allow-downgrade",
			onIstiod(func(i Inventory) bool { return known(i) && i.version().newer(i.Ours) }, bothVersions),
			func(w Waivers) bool { return w.Downgrade },
		},
		{
			Blocker, OriginUntested, "migrations from this minor of Istio are not intended: %s",
			"upgrade the guest's istiod to " + testedVersions() + " first, or accept the risk with --allow-untested",
			onIstiod(func(i Inventory) bool {
				v := i.version()
				return known(i) && !v.newer(i.Ours) && (v.Major != 1 || !slices.Contains(testedMinors(), v.Minor))
			}, bothVersions),
			func(w Waivers) bool { return w.Untested },
		},
	}
}

// bothVersions names the versions of both istiods.
func bothVersions(i Inventory) string {
	return fmt.Sprintf("%s in the guest, %s hosted", i.version(), i.Ours)
}

// evidenceOfBoth names what shows that there are two installations.
func evidenceOfBoth(i Inventory) string {
	var out []string
	for what, name := range map[string]string{"Istio": i.Origin.Istio, "IstioRevision": i.Origin.IstioRevision} {
		if name != "" {
			out = append(out, what+" "+name)
		}
	}
	slices.Sort(out)
	if len(i.Origin.Finalized) > 0 {
		out = append(out, "the finalizer of GatewayClass "+i.Origin.Finalized[0])
	}
	return strings.Join(out, ", ")
}

func resourceRows() []row {
	return []row{
		{
			Blocker, AlphaResources, "the hosted istiod serves this kind with alpha features only, and would drop its listeners or routes",
			"remove it, or wait for a version of hypergate whose istiod serves this kind",
			func(i Inventory) ([]Object, string) {
				if i.version().Minor < alphaServedFrom {
					return nil, ""
				}
				return i.Alpha, ""
			}, nil,
		},
		{
			Blocker, IgnoredResources, "istiod in the guest obeys this object, and the hosted one would ignore it. " +
				"An ignored AuthorizationPolicy permits requests that it denied",
			"remove it, name its kind in --istio-resources, or accept that it is ignored with --allow-ignored-resources",
			func(i Inventory) ([]Object, string) { return i.Foreign, "" },
			func(w Waivers) bool { return w.IgnoredResources },
		},
		{
			Blocker, SecondDeployment, "istiod made this Deployment for an earlier class or name of %s. " +
				"Its pods get requests, too, but no configuration once the istiod in the guest is parked",
			"delete it, or scale it to 0; the Gateway has another one",
			secondDeployments, nil,
		},
		{
			Blocker, SidecarsInUse, "istiod in the guest injects sidecars here, and its webhook rejects new pods once it is parked",
			"remove the label istio.io/rev, and restart the pods",
			func(i Inventory) ([]Object, string) { return i.Sidecars, "" }, nil,
		},
		{
			// The origin passes the guest's proxy in its mesh configuration (cluster-ingress-operator,
			// pkg/operator/controller/gatewayclass/istio_sail_installer.go), and hypergate in its class defaults.
			Blocker, ProxyLost, "its pods have the proxy of the mesh configuration, and its new pods lose it until the istiod " +
				"in the guest is removed",
			"if its pods need the proxy, set its variables with spec.infrastructure.parametersRef of the Gateway; then accept the loss " +
				"with --allow-proxy-loss",
			onGateways(func(_ Inventory, g InventoryGateway) bool {
				return g.Of == OfOrigin && g.remains() && g.Proxied && !g.Skip
			},
				func(InventoryGateway) string { return "" }),
			func(w Waivers) bool { return w.ProxyLoss },
		},
	}
}

// gatewayRows are about Gateways that still have to move: the annotations of others are their owners' matter.
func gatewayRows() []row {
	address := "istiod-%s.%s.svc:15012"
	return []row{
		{
			Blocker, OtherRoot, "both istiods would write the ConfigMap with the roots that gateways trust, each with its own root: %s",
			"give the istiod in the guest another trustBundleName", otherRoot, nil,
		},
		{
			Blocker, OtherAddress, "its pods connect to another istiod: %s",
			"let the istiod in the guest deploy it: check its annotations and meshConfig.defaultConfig.discoveryAddress",
			onGateways(func(i Inventory, g InventoryGateway) bool {
				return g.remains() && g.Address != fmt.Sprintf(address, i.Revision, i.Namespace)
			}, func(g InventoryGateway) string { return g.Address }), nil,
		},
		{
			Blocker, ForeignHold, "another client holds it with the annotation " + model.HoldAnnotation,
			"remove the annotation, or leave the Gateway out with " + SkipAnnotation + "=true",
			onGateways(func(_ Inventory, g InventoryGateway) bool {
				return g.remains() && g.Hold == model.HeldByOther && !g.Skip
			},
				func(InventoryGateway) string { return "" }), nil,
		},
		{
			Blocker, SkipImpossible, "its annotation leaves it at the istiod in the guest, which has no pods from phase Lead on, " +
				"because it is of Istio 1.26 or earlier",
			"remove the annotation " + SkipAnnotation + ", or upgrade the guest's istiod first",
			onGateways(func(i Inventory, g InventoryGateway) bool {
				return g.remains() && g.Skip && i.version() != Version{} && i.version().Minor < followsFrom
			}, func(InventoryGateway) string { return "" }), nil,
		},
		{
			Blocker, InvalidAnnotation, "the value of its annotation is not supported: %s",
			"set true for " + SkipAnnotation + ", and a whole number for " + OrderAnnotation + ", or remove the annotation",
			onGateways(func(_ Inventory, g InventoryGateway) bool { return g.remains() && g.Invalid != "" },
				func(g InventoryGateway) string { return g.Invalid }), nil,
		},
		{
			Blocker, TooManyGateways, "the guest has more Gateways than a migration handles",
			"move some of them to another class first",
			func(i Inventory) (out []Object, detail string) {
				if len(i.Gateways) <= model.MaxGateways {
					return nil, ""
				}
				g := i.Gateways[model.MaxGateways]
				return []Object{{Kind: "Gateway", Namespace: g.Key.Namespace, Name: g.Key.Name}}, ""
			}, nil,
		},
		{
			Blocker, MissingPermissions, "the check is not complete, because the guest does not permit: %s",
			"apply deploy/rbac/migration in the guest",
			func(i Inventory) ([]Object, string) {
				if len(i.Unread) == 0 {
					return nil, ""
				}
				return []Object{{Kind: "ClusterRole", Name: "hypergate-migration"}}, strings.Join(i.Unread, ", ")
			}, nil,
		},
	}
}

// otherRoot returns the origin's Deployment, if the origin publishes its roots in the ConfigMap of the hosted istiod.
// It does so in each namespace, also without a Gateway. Otherwise, otherRoot returns the Gateways whose pods have it.
func otherRoot(i Inventory) (out []Object, detail string) {
	ours := model.Config{Revision: i.Revision}.TrustBundleName()
	if deployment := i.Origin.Deployment; deployment != nil && deployment.Root == ours {
		return []Object{i.istiod()}, ours
	}
	return onGateways(func(_ Inventory, g InventoryGateway) bool { return g.Of == OfOrigin && g.Root == ours },
		func(g InventoryGateway) string { return g.Root })(i)
}

// secondDeployments returns Deployments of Gateways that have another one, besides those of Gateways that stay.
func secondDeployments(i Inventory) (out []Object, detail string) {
	for _, g := range i.Gateways {
		if !g.remains() || g.Skip || g.Elsewhere {
			continue
		}
		for _, name := range g.Second {
			if detail == "" {
				detail = Object{Kind: "Gateway", Namespace: g.Key.Namespace, Name: g.Key.Name}.String()
			}
			out = append(out, Object{Kind: "Deployment", Namespace: g.Key.Namespace, Name: name})
		}
	}
	return out, detail
}
