package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/test/cluster/planes"
)

// hypergateGroup is a group with which API priority and fairness treats hypergate as a service account, as in a
// cluster.
const hypergateGroup = "system:serviceaccounts"

// apiServer is one control plane.
type apiServer struct {
	name    string
	plane   *planes.Plane
	typed   kubernetes.Interface
	objects dynamic.Interface
	audit   *auditLog
}

// startAPIServer starts a control plane in which hypergate's users have all permissions.
func startAPIServer(ctx context.Context, name, dir string) (s *apiServer, err error) {
	progress("starting the control plane %s", name)
	plane, err := planes.StartPlane(ctx, name, dir, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			plane.Stop()
		}
	}()
	if err = plane.Profile(ctx); err != nil {
		return nil, err
	}
	s = &apiServer{name: name, plane: plane}
	config := rest.CopyConfig(s.plane.Config)
	config.UserAgent, config.WarningHandler = "scale", rest.NoWarnings{} // the CRD has formats that the API server does not know
	if s.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	if s.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hypergates"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: hypergateGroup}},
	}
	if _, err = s.typed.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("letting hypergate's users into %s: %w", name, err)
	}
	s.audit, err = openAudit(s.plane.AuditLog)
	return s, err
}

// usage is the resource usage that an API server reports. Memory is in bytes, CPU in seconds since its start.
type usage struct{ cpu, live, rss, watches float64 }

func (s *apiServer) usage(ctx context.Context) (usage, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return usage{}, err
	}
	return parseUsage(text)
}

// usageAfterGC returns the usage after a garbage collection, so that live memory does not include uncollected garbage.
func (s *apiServer) usageAfterGC(ctx context.Context) (usage, error) {
	if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return usage{}, err
	}
	return s.usage(ctx)
}

func (s *apiServer) get(ctx context.Context, uri string) ([]byte, error) {
	data, err := s.typed.Discovery().RESTClient().Get().RequestURI(uri).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", uri, s.name, err)
	}
	return data, nil
}

// parseUsage reads the required metrics. A missing metric is an error.
func parseUsage(text []byte) (usage, error) {
	var out usage
	into := map[string]*float64{
		"process_cpu_seconds_total": &out.cpu, "process_resident_memory_bytes": &out.rss, "apiserver_longrunning_requests": &out.watches,
		"go_memstats_heap_alloc_bytes": &out.live, "go_memstats_stack_inuse_bytes": &out.live,
	}
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		end := strings.IndexAny(line, "{ ")
		if end < 0 || into[line[:end]] == nil || strings.Contains(line, "{") && !strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return usage{}, fmt.Errorf("reading the metrics of an API server: line %q: %w", line, err)
		}
		seen[line[:end]] = true
		*into[line[:end]] += value
	}
	if err := lines.Err(); err != nil {
		return usage{}, fmt.Errorf("reading the metrics of an API server: %w", err)
	}
	if len(seen) != len(into) {
		return usage{}, fmt.Errorf("reading the metrics of an API server: there are only %v", seen)
	}
	return out, nil
}
