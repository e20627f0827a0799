package fleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/text"
)

const (
	// usualPage is how many objects one request lists. maxPages is how many pages of one kind are read.
	usualPage = 500
	maxPages  = 100
	// longestName is the size limit of a name, in bytes.
	longestName = 253
)

// Fleet is what a management cluster shows of its installations at a time.
type Fleet struct {
	// Now is the time of the API server.
	Now time.Time
	// Installations are sorted by namespace and name of the Lease.
	Installations []summary.Reading
	// Without are the hosted clusters without an installation.
	Without []Cluster
	// Notes say what could not be read. The fleet is valid without it.
	Notes []string
}

// Cluster is a HostedControlPlane, or a Cluster of Cluster API.
type Cluster struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Client reads a management cluster. It can be used by several goroutines.
type Client struct {
	// PageSize is how many objects one request lists. New sets it to 500.
	PageSize int64

	leases coordinationclient.CoordinationV1Interface
	meta   metadata.Interface
	clock  func() time.Time
}

// New returns a client. It sends no requests.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // there are few requests
	clock := Clock(config)
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client: %w", err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client: %w", err)
	}
	return &Client{PageSize: usualPage, leases: leases, meta: meta, clock: clock}, nil
}

// leasePrefix is what the names of hypergate's own Leases begin with. The revision follows.
const leasePrefix = "hypergate-"

// Installations returns the installations in a namespace, or in all namespaces if it is empty, and the time of the API
// server. It keeps no Leases, whose size hypergate does not limit.
func (c *Client) Installations(ctx context.Context, namespace string) ([]summary.Reading, time.Time, error) {
	var out []summary.Reading
	err := c.paged(func(options metav1.ListOptions) (string, error) {
		options.LabelSelector = summary.Label + "=" + summary.LabelValue
		list, err := c.leases.Leases(namespace).List(ctx, options)
		if err != nil {
			return "", err
		}
		if options.Continue == "" {
			out = nil
		}
		out = append(out, readings(list.Items, c.clock())...)
		return list.Continue, nil
	})
	now := c.clock()
	if err != nil {
		return nil, now, readError("Leases", "leases.coordination.k8s.io", err)
	}
	slices.SortFunc(out, func(a, b summary.Reading) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Lease, b.Lease))
	})
	return out, now, nil
}

// Installation returns what the Lease of one installation shows. Unlike Installations, it needs only the permission to
// get this Lease. The error of a Lease that does not exist is a NotFound.
func (c *Client) Installation(ctx context.Context, namespace, revision string) (summary.Reading, error) {
	lease, err := c.leases.Leases(namespace).Get(ctx, LeaseName(revision), metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return summary.Reading{}, fmt.Errorf("reading the Lease: %w: to permit it, grant what deploy/rbac/management grants for Leases",
			err)
	case err != nil:
		return summary.Reading{}, readError("the Lease", "", err)
	}
	return summary.Read(lease, c.clock()), nil
}

// LeaseName returns the name of hypergate's own Lease.
func LeaseName(revision string) string { return leasePrefix + revision }

// readings returns what those Leases show whose names are hypergate's.
func readings(leases []coordinationv1.Lease, now time.Time) (out []summary.Reading) {
	for i := range leases {
		if strings.HasPrefix(leases[i].Name, leasePrefix) {
			out = append(out, summary.Read(&leases[i], now))
		}
	}
	return out
}

// Fleet returns all installations, and the hosted clusters without one. A forbidden read of the latter is a note.
func (c *Client) Fleet(ctx context.Context, namespace string) (Fleet, error) {
	var out Fleet
	var err error
	if out.Installations, out.Now, err = c.Installations(ctx, namespace); err != nil {
		return Fleet{}, err
	}
	var all []Cluster
	for _, kind := range kinds() {
		clusters, err := c.clusters(ctx, kind, namespace)
		if err != nil && ctx.Err() != nil {
			return Fleet{}, err
		}
		if err != nil {
			out.Notes = append(out.Notes, err.Error()+"; hosted clusters without hypergate are not counted")
			break // without the HostedControlPlanes, it is not known which Clusters are HyperShift's
		}
		all = append(all, clusters...)
	}
	out.Without = without(out.Installations, all)
	return out, nil
}

// without returns the hosted clusters that have no installation. A namespace has at most one HostedControlPlane.
// HyperShift creates a Cluster beside it, which does not count: its name is the infraID of the same hosted cluster
// (hypershift-operator/controllers/hostedcluster, reconcileCAPICluster).
//
// An installation whose guest is not known can be that of each Cluster in its namespace. So none of them is known to be
// without one.
func without(installations []summary.Reading, all []Cluster) (out []Cluster) {
	installed, unknown, ofHyperShift := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range installations {
		installed[r.Namespace] = true
		if r.Summary == nil || r.Summary.Guest == "" {
			unknown[r.Namespace] = true
			continue
		}
		installed[r.Namespace+"/"+r.Summary.Guest] = true
	}
	for _, cluster := range all {
		if cluster.Kind == hostedControlPlane {
			ofHyperShift[cluster.Namespace] = true
		}
	}
	for _, cluster := range all {
		key := cluster.Namespace
		if cluster.Kind != hostedControlPlane {
			key += "/" + cluster.Name
		}
		if !installed[key] && (cluster.Kind == hostedControlPlane || !ofHyperShift[cluster.Namespace] && !unknown[cluster.Namespace]) {
			out = append(out, cluster)
		}
	}
	return out
}

// kind is a kind of hosted cluster.
type kind struct{ name, group, resource string }

const hostedControlPlane = "HostedControlPlane"

func kinds() []kind {
	return []kind{
		{hostedControlPlane, "hypershift.openshift.io", "hostedcontrolplanes"},
		{"Cluster", "cluster.x-k8s.io", "clusters"},
	}
}

// clusters returns the names of all objects of a kind. There are none if the API is not served.
func (c *Client) clusters(ctx context.Context, kind kind, namespace string) ([]Cluster, error) {
	version, err := c.preferred(ctx, kind.group)
	if err != nil || version == "" {
		return nil, err
	}
	resource := schema.GroupVersionResource{Group: kind.group, Version: version, Resource: kind.resource}
	var out []Cluster
	err = c.paged(func(options metav1.ListOptions) (string, error) {
		list, err := c.meta.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return "", err
		}
		if options.Continue == "" {
			out = nil
		}
		for i := range list.Items {
			item := &list.Items[i]
			out = append(out, Cluster{kind.name, text.Line(item.Namespace, longestName), text.Line(item.Name, longestName)})
		}
		return list.Continue, nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil // another kind of the group is served
	}
	if err != nil {
		return nil, readError(kind.name+"s", resource.GroupResource().String(), err)
	}
	return out, nil
}

// preferred returns the preferred version of an API group. It is empty if the group is not served.
func (c *Client) preferred(ctx context.Context, group string) (string, error) {
	data, err := c.leases.RESTClient().Get().AbsPath("/apis", group).SetHeader("Accept", "application/json").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", readError("the API group", group, err)
	}
	var found metav1.APIGroup
	if err := json.Unmarshal(data, &found); err != nil {
		return "", fmt.Errorf("reading the API group %s: %w", group, err)
	}
	return found.PreferredVersion.Version, nil
}

// paged lists page by page. list returns the token of the next page, and gets it. If the API server has forgotten the
// list in between, paged begins again, once.
func (c *Client) paged(list func(metav1.ListOptions) (next string, err error)) error {
	options, again := metav1.ListOptions{Limit: c.PageSize}, true
	for range maxPages {
		next, err := list(options)
		switch {
		case again && options.Continue != "" && apierrors.IsResourceExpired(err):
			options.Continue, again = "", false
		case err != nil:
			return err
		case next == "":
			return nil
		default:
			options.Continue = next
		}
	}
	return fmt.Errorf("there are more than %d: use -n to read one namespace", maxPages*c.PageSize)
}

// isCertificate reports whether a server answered whose certificate is not valid for the configuration.
func isCertificate(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// readError returns an error that names what was read and the next step.
func readError(what, resource string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("listing %s: %w", what, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("listing %s: %w: to permit it, bind the ClusterRole of deploy/fleet, which may list %s", what, err, resource)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("listing %s: %w: log in to the management cluster again", what, err)
	case isCertificate(err):
		return fmt.Errorf("listing %s: %w: another server answered, or its certificate was replaced: check --kubeconfig and --context",
			what, err)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return fmt.Errorf("listing %s: %w: check that the management cluster is running, and --kubeconfig and --context", what, err)
	default:
		return fmt.Errorf("listing %s: %w", what, err)
	}
}

// Clock returns the time of the API server that a configuration selects, as its last answer shows it. Before the first
// answer, it is that of this machine. Clock changes the configuration: use it before a client is made of it.
func Clock(config *rest.Config) (now func() time.Time) {
	clock := &serverClock{}
	config.Wrap(clock.wrap)
	return clock.now
}

// serverClock is the API server's clock, as the header Date of its last answer shows it.
type serverClock struct{ ahead atomic.Pointer[time.Duration] }

func (c *serverClock) now() time.Time {
	now := time.Now()
	if ahead := c.ahead.Load(); ahead != nil {
		now = now.Add(*ahead)
	}
	return now
}

func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return dated{next, c}
}

// dated is a transport that sets a clock.
type dated struct {
	next  http.RoundTripper
	clock *serverClock
}

// RoundTrip sends a request, and sets the clock from the answer.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		d.clock.ahead.Store(new(time.Until(date)))
	}
	return answer, nil
}

// WrappedRoundTripper returns the transport below. client-go finds the one that can end a request with it.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.next }
