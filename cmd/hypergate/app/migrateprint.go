package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hypergate/hypergate/pkg/migration"
	"github.com/hypergate/hypergate/pkg/model"
)

// migrationPlan is the output of the command migrate plan. Its JSON is an interface: fields can be added, but existing
// fields are never renamed or removed.
type migrationPlan struct {
	Origin plannedOrigin `json:"origin"`
	// HostedVersion is the version of the hosted istiod.
	HostedVersion string `json:"hostedVersion"`
	// Gateways are in the order in which they move.
	Gateways []planLine `json:"gateways"`
	// Writes are what a migration writes, by phase.
	Writes []migration.PlannedWrite `json:"writes"`
	// Findings are blockers and warnings. Blocked reports whether there is a blocker.
	Findings []migration.Finding `json:"findings"`
	Blocked  bool                `json:"blocked"`
}

// plannedOrigin is the istiod that the guest has.
type plannedOrigin struct {
	// Kind is OLM, sail library, Helm, changing, other, not readable or none.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Replicas  int32  `json:"replicas"`
	Ready     int32  `json:"ready"`
	// Evidence is what the kind follows from.
	Evidence []string `json:"evidence"`
}

// planLine is a Gateway in a plan.
type planLine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Class     string `json:"class"`
	Pods      int32  `json:"pods"`
	Ready     int32  `json:"ready"`
	Routes    int32  `json:"routes"`
	// Istiod is to which istiod its pods connect: origin, hosted, other, or empty without pods.
	Istiod string `json:"istiod"`
	// Note is moves, moved, skipped, held by another client, or no pods.
	Note string `json:"note"`
}

func newMigrationPlan(i migration.Inventory, accepted migration.Waivers) migrationPlan {
	out := migrationPlan{
		Origin:        plannedOriginOf(i),
		HostedVersion: i.Ours.String(), Gateways: []planLine{}, Writes: i.Writes(),
	}
	for _, g := range i.Ordered() {
		out.Gateways = append(out.Gateways, planLine{
			Namespace: g.Key.Namespace, Name: g.Key.Name, Class: g.Class, Pods: g.Deployment.Wanted, Ready: g.Deployment.Ready,
			Routes: g.Routes, Istiod: string(g.Of), Note: noteOf(g),
		})
	}
	return out.with(migration.Run(i, accepted))
}

// with returns the plan with these findings in place of its own.
func (p migrationPlan) with(findings []migration.Finding) migrationPlan {
	p.Findings = append([]migration.Finding{}, findings...)
	p.Blocked = slices.ContainsFunc(p.Findings, func(f migration.Finding) bool { return f.Severity == migration.Blocker })
	return p
}

func plannedOriginOf(i migration.Inventory) plannedOrigin {
	facts := i.Origin
	out := plannedOrigin{
		Kind: string(facts.Kind()), Namespace: i.Namespace, Name: "istiod-" + i.Revision,
		Version: migration.Version{}.String(), Evidence: []string{},
	}
	for _, object := range []struct{ kind, name string }{
		{"Istio", facts.Istio}, {"IstioRevision", facts.IstioRevision}, {"Subscription", facts.Subscription},
	} {
		if object.name != "" {
			out.Evidence = append(out.Evidence, object.kind+" "+object.name)
		}
	}
	for _, class := range facts.Finalized {
		out.Evidence = append(out.Evidence, "finalizer of GatewayClass "+class)
	}
	if d := facts.Deployment; d != nil {
		out.Version, out.Replicas, out.Ready = d.Version.String(), d.Wanted, d.Ready
		for _, label := range []string{migration.ManagedByLabel, migration.HelmLabel} {
			if value := d.Labels[label]; value != "" {
				out.Evidence = append(out.Evidence, "label "+label+"="+value)
			}
		}
	}
	return out
}

func noteOf(g migration.InventoryGateway) string {
	switch {
	case g.Of == migration.OfNone:
		return "no pods"
	case g.Hold == model.HeldByOther:
		return "held by another client"
	case g.Skip:
		return "skipped"
	case g.Of == migration.OfHosted:
		return "moved"
	default:
		return "moves"
	}
}

func (r migrationPlan) code() int {
	if r.Blocked {
		return exitAct
	}
	return exitOK
}

func (r migrationPlan) table(out io.Writer) {
	fmt.Fprintf(out, "Origin  %s: istiod %s, %s/%s, %d of %d pods ready\n", oneLine(r.Origin.Kind), r.Origin.Version,
		oneLine(r.Origin.Namespace), oneLine(r.Origin.Name), r.Origin.Ready, r.Origin.Replicas)
	if len(r.Origin.Evidence) > 0 {
		fmt.Fprintf(out, "        by: %s\n", oneLine(strings.Join(r.Origin.Evidence, ", ")))
	}
	fmt.Fprintf(out, "Hosted  istiod %s\n\n", r.HostedVersion)
	rows := append(make([][]string, 0, 1+len(r.Gateways)), []string{"ORDER", "GATEWAY", "CLASS", "PODS", "ROUTES", "ISTIOD", "NOTE"})
	for i, g := range r.Gateways {
		rows = append(rows, []string{
			fmt.Sprint(i + 1), g.Namespace + "/" + g.Name, g.Class, fmt.Sprintf("%d/%d", g.Ready, g.Pods), fmt.Sprint(g.Routes),
			orNothing(g.Istiod), g.Note,
		})
	}
	if len(r.Gateways) == 0 {
		fmt.Fprintln(out, "The guest has no Gateway to migrate.")
	} else {
		columns(out, rows...)
	}
	fmt.Fprintln(out)
	if len(r.Writes) > 0 {
		rows = append(make([][]string, 0, 1+len(r.Writes)), []string{"PHASE", "WRITE", "TO", "OBJECT"})
		for _, w := range r.Writes {
			rows = append(rows, []string{string(w.Phase), string(w.Write), w.Effect, orNothing(w.Object)})
		}
		columns(out, rows...)
		fmt.Fprintln(out)
	}
	r.findings(out)
}

func (r migrationPlan) findings(out io.Writer) {
	blockers := 0
	for _, f := range r.Findings {
		object := f.Object.String()
		if f.More > 0 {
			object += fmt.Sprintf(" and %d more", f.More)
		}
		fmt.Fprintf(out, "%s %s: %s\n", f.Severity, f.Code, oneLine(object))
		fmt.Fprintf(out, "    %s.\n    Next step: %s.\n\n", oneLine(f.Message), oneLine(f.NextStep))
		if f.Severity == migration.Blocker {
			blockers++
		}
	}
	if blockers == 0 {
		fmt.Fprintln(out, "Nothing blocks a migration.")
		return
	}
	fmt.Fprintf(out, "Blocked: %s.\n", counted(blockers, "finding"))
}
