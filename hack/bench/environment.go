package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hypergate/hypergate/hack/internal/istiod"
	"github.com/hypergate/hypergate/pkg/charts"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/cluster/planes"
)

const (
	className = "openshift-default"
	// istioCRDs is the suffix of the names of the CRDs that hypergate installs with the first GatewayClass.
	istioCRDs = ".istio.io"
	// patience is the timeout of each wait. After it, the measurement fails.
	patience = 60 * time.Second
	// settled is the time without requests after which the controller counts as done.
	settled = time.Second
)

// benchAgent is the user agent of the bench in the audit logs.
const benchAgent = "bench"

func classes() schema.GroupVersionResource {
	return gatewayv1.SchemeGroupVersion.WithResource("gatewayclasses")
}

func crds() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

func deployments() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource("deployments")
}

// side is one cluster with the bench's clients.
type side struct {
	name    model.Side
	plane   *planes.Plane
	objects dynamic.Interface
	meta    metadata.Interface
	audit   *auditLog
	kinds   []model.Kind
}

// environment is the two clusters and the controller.
type environment struct {
	opts   options
	cfg    model.Config
	source *charts.Source
	dir    string
	binary string
	pair   *planes.Pair
	mgmt   *side
	guest  *side
	// controller is nil while none runs.
	controller *process
	webhook    *istiod.Webhook
	// stopPlaying ends the simulated Deployment controller. It is nil while none runs.
	stopPlaying context.CancelFunc
	// installedAt is the mark at which the events of the shared installation begin.
	installedAt *mark
	// metricsAddress is where a controller that starts serves metrics. Empty: nowhere, because that costs memory.
	metricsAddress string
	// disturbed counts measurements that began while the machine was busy.
	disturbed int
}

func newEnvironment(ctx context.Context, o options) (w *environment, err error) {
	w = &environment{opts: o, cfg: model.Config{
		Topology: model.TopologyHosted, MgmtNamespace: "clusters-guest1", GuestNamespace: "openshift-ingress",
		ControllerName: "openshift.io/gateway-controller/v1", Revision: "openshift-gateway",
		PilotImage: "registry.example.com/pilot:" + charts.EmbeddedVersion,
		ProxyImage: "registry.example.com/proxyv2:" + charts.EmbeddedVersion,
		XDS:        model.HostPort{Host: "istiod.apps.example.com", Port: 443}, IstioResources: model.LayeredProductResources(),
		NetworkPolicies: model.HyperShiftPeers(),
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
			w = nil
		}
	}()
	if w.source, err = charts.Embedded(); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp("", "hypergate-bench-"); err != nil {
		return w, fmt.Errorf("making a folder for the bench: %w", err)
	}
	if w.binary, err = buildController(ctx, o.binary, w.dir); err != nil {
		return w, err
	}
	host, err := istiod.RandomHost()
	if err != nil {
		return w, err
	}
	if w.webhook, err = istiod.Listen(ctx, host); err != nil {
		return w, err
	}
	w.cfg.WebhookHost = w.webhook.Host
	progress("starting two control planes")
	if w.pair, err = planes.Start(ctx, planes.Options{Dir: filepath.Join(w.dir, "planes")}); err != nil {
		return w, err
	}
	if w.mgmt, err = newSide(model.SideMgmt, w.pair.Mgmt, model.MgmtKinds()); err != nil {
		return w, err
	}
	if w.guest, err = newSide(model.SideGuest, w.pair.Guest, model.GuestKinds()); err != nil {
		return w, err
	}
	return w, errors.Join(w.mgmt.createNamespace(ctx, w.cfg.MgmtNamespace), w.guest.createNamespace(ctx, w.cfg.GuestNamespace))
}

// stop ends everything that the world started.
func (w *environment) stop() error {
	var errs []error
	w.stopPlayer()
	errs = append(errs, w.stopController())
	if w.webhook != nil {
		errs = append(errs, w.webhook.Close())
	}
	if w.pair != nil {
		errs = append(errs, w.pair.Stop())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

func newSide(name model.Side, plane *planes.Plane, kinds []model.Kind) (*side, error) {
	config := rest.CopyConfig(plane.Config)
	config.UserAgent = benchAgent
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the %s side: %w", name, err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the %s side: %w", name, err)
	}
	audit, err := openAudit(name, plane.AuditLog)
	if err != nil {
		return nil, err
	}
	return &side{name: name, plane: plane, objects: objects, meta: meta, audit: audit, kinds: kinds}, nil
}

func (s *side) createNamespace(ctx context.Context, name string) error {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	if _, err := s.objects.Resource(namespaces).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a namespace on the %s side: %w", s.name, err)
	}
	return nil
}

func (w *environment) sides() []*side { return []*side{w.mgmt, w.guest} }

// mark is a position in the two audit logs.
type mark struct{ mgmt, guest int }

func (w *environment) mark() (mark, error) {
	err := errors.Join(w.mgmt.audit.read(), w.guest.audit.read())
	return mark{len(w.mgmt.audit.events), len(w.guest.audit.events)}, err
}

// since returns the events after the mark, in the order of their completion.
func (w *environment) since(m mark) ([]event, error) {
	if _, err := w.mark(); err != nil {
		return nil, err
	}
	all := slices.Concat(w.mgmt.audit.events[m.mgmt:], w.guest.audit.events[m.guest:])
	slices.SortStableFunc(all, func(a, b event) int { return a.StageTimestamp.Compare(b.StageTimestamp) })
	return all, nil
}

// requests returns the controller's requests after the mark, without watches and requests for the Lease.
func (w *environment) requests(m mark) ([]event, error) {
	all, err := w.since(m)
	return slices.DeleteFunc(all, func(e event) bool { return !e.byController() || e.kind() == kindWatch || e.kind() == kindLease }), err
}

// glance is the interval at which until checks a condition. Times come from the audit logs, so a shorter interval would
// not make them more exact. It would take CPU time from the measurement.
const glance = 20 * time.Millisecond

// until waits for a condition. It fails if the controller ends.
func (w *environment) until(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, glance, patience, true, func(ctx context.Context) (bool, error) {
		if w.controller != nil {
			if err := w.controller.alive(); err != nil {
				return false, err
			}
		}
		return condition(ctx)
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w%s", what, err, w.controllerLog())
	}
	return nil
}

// settle waits until the controller has sent no requests for the time settled.
func (w *environment) settle(ctx context.Context) error {
	m, err := w.mark()
	if err != nil {
		return err
	}
	start := time.Now()
	return w.until(ctx, "the controller is silent", func(context.Context) (bool, error) {
		requests, err := w.requests(m)
		if err != nil || time.Since(start) < settled {
			return false, err
		}
		return len(requests) == 0 || time.Since(requests[len(requests)-1].StageTimestamp) > settled, nil
	})
}

// quiet waits until the machine is idle, so that earlier work and other users of the machine do not affect the next
// measurement. For example, an API server processes CRDs for some time.
//
// The machine must be idle for two windows in a row, because an API server pauses between a CRD and its processing. If
// the machine does not become idle, quiet counts the measurement as disturbed.
func (w *environment) quiet(ctx context.Context) error {
	const window, idle, limit = 500 * time.Millisecond, 0.85, 40 * time.Second
	start, calm := time.Now(), 0
	before, err := readCPU()
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, window, false, func(context.Context) (bool, error) {
		now, err := readCPU()
		if err != nil {
			return false, err
		}
		share := float64(now.idle-before.idle) / float64(max(now.total-before.total, 1))
		before = now
		if calm++; share < idle {
			calm = 0
		}
		if calm == 0 && time.Since(start) > limit {
			progress("the machine is busy (%.0f %% idle); measuring all the same", 100*share)
			w.disturbed++
			return true, nil
		}
		return calm == 2, nil
	})
}

// cpu is the time of the machine's CPUs since its start, in ticks.
type cpu struct{ idle, total int }

func readCPU() (cpu, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}, fmt.Errorf("reading how busy the machine is: %w", err)
	}
	var label string
	var user, nice, system, idle, iowait, irq, softirq, steal int
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	if _, err := fmt.Sscan(string(line), &label, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return cpu{}, fmt.Errorf("reading how busy the machine is: %w", err)
	}
	return cpu{idle: idle + iowait, total: user + nice + system + idle + iowait + irq + softirq + steal}, nil
}

// createClass creates the GatewayClass for which hypergate installs istiod.
func (w *environment) createClass(ctx context.Context) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": classes().GroupVersion().String(), "kind": "GatewayClass", "metadata": map[string]any{"name": className},
		"spec": map[string]any{"controllerName": w.cfg.ControllerName},
	}}
	if _, err := w.guest.objects.Resource(classes()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the GatewayClass: %w", err)
	}
	return nil
}

// clear removes an installation from both sides, with or without a controller as its origin. It deletes the
// GatewayClass, all objects with hypergate's label, and Istio's CRDs. The CRDs of the Gateway API stay, because they
// exist before the first GatewayClass. The controller must not run.
func (w *environment) clear(ctx context.Context) error {
	err := w.guest.objects.Resource(classes()).Delete(ctx, className, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the GatewayClass: %w", err)
	}
	if err := w.served(ctx); err != nil {
		return err
	}
	for _, s := range w.sides() {
		if err := w.clearSide(ctx, s); err != nil {
			return fmt.Errorf("clearing the %s side: %w", s.name, err)
		}
	}
	return nil
}

// served waits until the guest's API server can list the objects of each of Istio's CRDs. In a real cluster istiod
// would have listed them long before. Otherwise the deletion of the CRD fails at first, because the API server cannot
// list the objects to delete ("storage is (re)initializing"). The API server then waits long before it retries.
func (w *environment) served(ctx context.Context) error {
	list, err := w.guest.objects.Resource(crds()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing CRDs: %w", err)
	}
	for _, u := range list.Items {
		if !strings.HasSuffix(u.GetName(), istioCRDs) || u.GetDeletionTimestamp() != nil {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
			return fmt.Errorf("reading CRD %s: %w", u.GetName(), err)
		}
		resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
		err := w.until(ctx, crd.Name+" is served", func(ctx context.Context) (bool, error) {
			_, err := w.guest.meta.Resource(resource).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *environment) clearSide(ctx context.Context, s *side) error {
	members := func(ctx context.Context, k model.Kind) ([]metav1.PartialObjectMetadata, error) {
		owned := metav1.ListOptions{LabelSelector: model.OwnerLabel + "=" + w.cfg.OwnerValue(s.name)}
		list, err := s.meta.Resource(gvr(k)).List(ctx, owned)
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool {
			return k.NeverPrune && !strings.HasSuffix(o.Name, istioCRDs)
		}), nil
	}
	for _, k := range s.kinds {
		objects, err := members(ctx, k)
		if err != nil {
			return err
		}
		for _, o := range objects {
			err := s.meta.Resource(gvr(k)).Namespace(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	for _, k := range s.kinds {
		err := w.until(ctx, k.Resource+" are gone", func(ctx context.Context) (bool, error) {
			objects, err := members(ctx, k)
			return len(objects) == 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func gvr(k model.Kind) schema.GroupVersionResource {
	return k.GVK.GroupVersion().WithResource(k.Resource)
}
