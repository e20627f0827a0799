package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/test/cluster"
	"github.com/hypergate/hypergate/test/deploy"
	"github.com/hypergate/hypergate/test/world"
	"github.com/hypergate/hypergate/test/xds"
)

// show prints the current state of both sides.
func show(ctx context.Context, w *world.World, out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n", identities(w.Topology))
	for _, section := range []func(context.Context, *world.World, io.Writer) error{
		showMgmt, showGuest, showDropped, showConditions, showProxy,
	} {
		if err := section(ctx, w, out); err != nil {
			return err
		}
	}
	return nil
}

// identities returns one line that names the user of each component.
func identities(topology model.Topology) string {
	if topology == model.TopologyStandalone {
		return fmt.Sprintf("hypergate runs as the pod of deploy/standalone, as service account %s/%s with the roles there (no cluster "+
			"admin), istiod as %s/istiod-%s with those that hypergate hands on.",
			deploy.GuestNamespace, deploy.Account, deploy.GuestNamespace, world.Revision)
	}
	return fmt.Sprintf("hypergate runs as the pod of deploy/hosted, as service account %s/%s on the management cluster (five Roles of "+
		"one namespace: management, hosted-control-plane, webhook-service, publish and network-policies of deploy/rbac) and %s/%s in "+
		"the guest (deploy/rbac/guest), "+
		"istiod as %s/istiod-%s in the guest and has no credentials for the management cluster.",
		deploy.MgmtNamespace, deploy.Account, deploy.GuestNamespace, deploy.Account, deploy.GuestNamespace, world.Revision)
}

func title(out io.Writer, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(out, "\n%s\n%s\n", text, strings.Repeat("-", len([]rune(text))))
}

func showMgmt(ctx context.Context, w *world.World, out io.Writer) error {
	title(out, "Management cluster, namespace %s", w.MgmtNamespace)
	if err := showMembers(ctx, w.MgmtDynamic, model.SideMgmt, model.MgmtKinds(), out); err != nil {
		return err
	}
	pods, err := w.MgmtClient.CoreV1().Pods(w.MgmtNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nPOD\tPHASE\tIMAGE")
	for _, pod := range pods.Items {
		fmt.Fprintf(table, "%s\t%s\t%s\n", pod.Name, pod.Status.Phase, pod.Spec.Containers[0].Image)
	}
	return table.Flush()
}

func showGuest(ctx context.Context, w *world.World, out io.Writer) error {
	title(out, "Guest")
	return showMembers(ctx, w.GuestDynamic, model.SideGuest, model.GuestKinds(), out)
}

// showMembers prints hypergate's objects on a side.
func showMembers(ctx context.Context, client dynamic.Interface, side model.Side, kinds []model.Kind, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tNAME\tNOTE")
	for _, kind := range kinds {
		list, err := client.Resource(world.Resource(kind.GVK.Group, kind.GVK.Version, kind.Resource)).
			List(ctx, metav1.ListOptions{LabelSelector: model.OwnerLabel + "=" + world.Revision + "." + string(side)})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.Resource, err)
		}
		for _, u := range list.Items {
			name := u.GetName()
			if u.GetNamespace() != "" {
				name = u.GetNamespace() + "/" + name
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", u.GetKind(), name, note(u.Object))
		}
	}
	return table.Flush()
}

// note returns a remark about an object, or an empty text.
func note(object map[string]any) string {
	webhooks, _ := object["webhooks"].([]any)
	if len(webhooks) == 0 {
		return ""
	}
	webhook, _ := webhooks[0].(map[string]any)
	config, _ := webhook["clientConfig"].(map[string]any)
	if url, ok := config["url"].(string); ok {
		return fmt.Sprintf("%s, failurePolicy %v", url, webhook["failurePolicy"])
	}
	return fmt.Sprintf("in-cluster Service, failurePolicy %v", webhook["failurePolicy"])
}

// showDropped computes the plan again, as hypergate does, and prints the dropped objects.
func showDropped(_ context.Context, w *world.World, out io.Writer) error {
	source, err := charts.Embedded()
	if err != nil {
		return err
	}
	cfg := model.Config{
		Topology: w.Topology, MgmtNamespace: w.MgmtNamespace, GuestNamespace: world.GuestNamespace, ControllerName: world.ControllerName,
		Revision: world.Revision, PilotImage: cluster.IstiodImage, ProxyImage: world.ProxyImage, XDS: w.XDS(),
		WebhookHost: "gw-webhook-" + world.Revision, IstioResources: model.LayeredProductResources(),
		NetworkPolicies: model.HyperShiftPeers(),
	}
	ca, err := pki.New(time.Now())
	if err != nil {
		return err
	}
	state, err := desired.Compute(cfg, source, model.ManagementObservation{CA: ca},
		model.GuestObservation{Classes: []model.GatewayClass{{Name: class}}})
	if err != nil {
		return err
	}
	title(out, "Rendered by Istio's chart and dropped")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RELEASE\tKIND\tWHY")
	type row struct{ release, kind, why string }
	var rows []row
	count := map[row]int{}
	for _, d := range state.Dropped {
		r := row{d.Release, d.Kind, d.Reason}
		if count[r]++; count[r] == 1 {
			rows = append(rows, r)
		}
	}
	for _, r := range rows {
		kind := r.kind
		if count[r] > 1 {
			kind = fmt.Sprintf("%s (%d)", kind, count[r])
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.release, kind, r.why)
	}
	return table.Flush()
}

func showConditions(ctx context.Context, w *world.World, out io.Writer) error {
	title(out, "Conditions, as the guest's admin sees them")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tCONDITION\tSTATUS\tREASON\tMESSAGE")
	printAll := func(object string, conditions []metav1.Condition) {
		for _, c := range conditions {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", object, c.Type, c.Status, c.Reason, firstLine(c.Message))
		}
	}
	gatewayClass, err := w.Gateways.GatewayClasses().Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the GatewayClass: %w", err)
	}
	printAll("GatewayClass "+class, gatewayClass.Status.Conditions)
	g, err := w.Gateways.Gateways(world.GuestNamespace).Get(ctx, gateway, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the Gateway: %w", err)
	}
	printAll("Gateway "+gateway, g.Status.Conditions)
	route, err := w.Gateways.HTTPRoutes(namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the HTTPRoute: %w", err)
	}
	for _, parent := range route.Status.Parents {
		printAll("HTTPRoute echo", parent.Conditions)
	}
	return table.Flush()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// showProxy connects to istiod as the gateway's proxy would, and prints the configuration that it receives.
func showProxy(ctx context.Context, w *world.World, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	client, err := w.Proxy(ctx, world.GuestNamespace, gateway)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	certificate, err := client.CSR(ctx)
	if err != nil {
		return err
	}
	config, err := client.WaitFor(ctx, func(c *xds.Config) error {
		_, err := c.Reach(80, host, "/api/hello")
		return err
	})
	if err != nil {
		return err
	}
	title(out, "What a proxy in the guest received from istiod (TLS to %s)", w.XDS())
	fmt.Fprintf(out, "certificate %s, until %s\n", certificate.ID, certificate.Expiry.UTC().Format("2006-01-02 15:04 MST"))
	config.Print(out)
	return nil
}
