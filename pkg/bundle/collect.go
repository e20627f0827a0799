package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/text"
)

const (
	// pageSize is how many objects one request lists. maxPages is how many requests list one kind, because pages with
	// large objects are smaller. mostObjects is how many of its objects are read.
	pageSize    = 100
	maxPages    = 100
	mostObjects = 2000
	// longestProblem is the limit of an error in errors.txt, in bytes.
	longestProblem = 1 << 10
)

// Side is one side of an installation.
type Side struct {
	// Name is the folder in the archive. Namespace is that of hypergate.
	Name, Namespace string
	Kinds           []Kind
}

// UnreadError means that an API server listed nothing: neither its API groups, nor any kind. So the archive has nothing
// of a side.
type UnreadError struct {
	Side string
	Err  error
}

// Error returns the side, and the cause.
func (e UnreadError) Error() string { return "reading the " + e.Side + " side: " + e.Err.Error() }

// Unwrap returns the cause.
func (e UnreadError) Unwrap() error { return e.Err }

// Collect adds the objects of a side to an archive. What cannot be read is a problem of the archive. The error is an
// UnreadError, about the archive, or about the end of ctx.
func Collect(ctx context.Context, config *rest.Config, side Side, archive *Archive) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // there are few requests
	config.Wrap(answer.Limit("the API server of the " + side.Name))
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for the %s: %w", side.Name, err)
	}
	c := collector{client: core.RESTClient(), side: side, archive: archive, redact: newRedactor()}
	if c.groups, err = c.served(ctx); err != nil {
		c.problem("API groups", err)
		return UnreadError{side.Name, err}
	}
	for _, kind := range side.Kinds {
		if err := c.kind(ctx, kind); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if c.unread != nil && !c.read {
		return UnreadError{side.Name, c.unread}
	}
	return nil
}

// collector reads one side.
type collector struct {
	client  rest.Interface
	side    Side
	archive *Archive
	redact  redactor
	// groups are the versions of the served API groups, the preferred one first.
	groups map[string][]string
	// read reports whether a kind was listed. unread is the first error of a kind.
	read   bool
	unread error
}

func (c *collector) problem(what string, err error) {
	c.archive.Problem(c.side.Name + ": " + what + ": " + text.Line(c.redact.text(err.Error(), 0), longestProblem))
}

// isVersion matches a version of an API group.
var isVersion = regexp.MustCompile(`^v[0-9a-z]{1,20}$`)

// served returns the versions of the served API groups.
func (c *collector) served(ctx context.Context) (map[string][]string, error) {
	data, err := answered(c.client.Get().AbsPath("/apis").SetHeader("Accept", "application/json").Do(ctx))
	if err != nil {
		return nil, err
	}
	var found metav1.APIGroupList
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, err
	}
	out := map[string][]string{"": {"v1"}}
	for _, group := range found.Groups {
		var versions []string
		for _, v := range slices.Concat([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions) {
			// The server's answer becomes part of a path.
			if isVersion.MatchString(v.Version) && !slices.Contains(versions, v.Version) {
				versions = append(versions, v.Version)
			}
		}
		out[group.Name] = versions
	}
	return out, nil
}

// answered returns the body of an answer. Its error has the API server's own message.
func answered(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// kind adds the objects of a kind.
func (c *collector) kind(ctx context.Context, kind Kind) error {
	for _, version := range c.groups[kind.group] {
		found := newContents()
		err := c.list(ctx, kind, version, found)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if apierrors.IsNotFound(err) {
			continue // another version has it, or none
		}
		if err != nil {
			c.problem(kind.resource, err)
			c.unread = cmp.Or(c.unread, err)
		}
		c.read = c.read || err == nil || found.listed > 0
		for _, problem := range found.problems() {
			c.problem(kind.resource, problem)
		}
		return c.write(ctx, kind, found.kept)
	}
	return nil
}

// list adds the objects of a kind to found. With an error, these are the ones before it.
func (c *collector) list(ctx context.Context, kind Kind, version string, found *contents) error {
	pages := answer.Pages{Size: pageSize, Requests: maxPages}
	err := pages.List(metav1.ListOptions{LabelSelector: kind.selector}, func(options metav1.ListOptions) (string, error) {
		page, err := c.page(ctx, kind, version, options)
		if err != nil {
			return "", err
		}
		if err := c.keep(ctx, kind, page.Items, found); err != nil {
			return "", err
		}
		next := page.Metadata.Continue
		if next != "" && found.listed >= mostObjects {
			return "", answer.ErrManyPages
		}
		return next, nil
	})
	switch {
	case errors.Is(err, answer.ErrManyPages):
		return fmt.Errorf("only the first %d objects are included", found.listed)
	case errors.Is(err, errFull), errors.Is(err, errMemory):
		return fmt.Errorf("only the objects before %d are included, because %w", found.listed, err)
	default:
		return err
	}
}

// keep adds objects to those that become files, without their credentials. Nothing is kept that the archive has no room
// for. To redact many objects takes longer than to list them, so ctx ends that, too.
func (c *collector) keep(ctx context.Context, kind Kind, objects []map[string]any, found *contents) error {
	for _, object := range objects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		found.listed++
		metadata, is := object["metadata"].(map[string]any)
		if !is {
			found.omit(errNoMetadata, "")
			continue
		}
		name, _ := metadata["name"].(string)
		namespace, _ := metadata["namespace"].(string)
		if !strings.HasPrefix(name, kind.prefix) {
			continue
		}
		trim(object)
		size, err := sizeOf(object)
		if err != nil {
			found.omit(err, text.Cut(strings.Trim(namespace+"/"+name, "/"), longestName))
			continue
		}
		if found.size += size; found.size > c.archive.left {
			return errFull
		}
		if found.memory += memoryOf(object); found.memory > mostKept {
			return errMemory
		}
		c.redact.value(object)
		found.kept[namespace] = append(found.kept[namespace], object)
	}
	return nil
}

// page is a page of a list.
type page struct {
	Metadata metav1.ListMeta  `json:"metadata"`
	Items    []map[string]any `json:"items"`
}

// page requests a page of the objects of a kind.
func (c *collector) page(ctx context.Context, kind Kind, version string, options metav1.ListOptions) (out page, err error) {
	request := c.client.Get().AbsPath(path(kind, version, c.side.Namespace)...).
		Param("limit", strconv.FormatInt(options.Limit, 10)).SetHeader("Accept", "application/json")
	if kind.metadataOnly {
		request.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	if options.LabelSelector != "" {
		request.Param("labelSelector", options.LabelSelector)
	}
	if options.Continue != "" {
		request.Param("continue", options.Continue)
	}
	data, err := answered(request.Do(ctx))
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(data, &out)
	return out, err
}

// path returns where a kind is listed.
func path(kind Kind, version, namespace string) []string {
	out := []string{"/api", version}
	if kind.group != "" {
		out = []string{"/apis", kind.group, version}
	}
	if kind.scope == ofNamespace {
		out = append(out, "namespaces", namespace)
	}
	return append(out, kind.resource)
}

// write adds objects to the archive, in a file for each namespace.
func (c *collector) write(ctx context.Context, kind Kind, files map[string][]any) error {
	for _, namespace := range slices.Sorted(maps.Keys(files)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		content, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": files[namespace]})
		if err != nil {
			c.problem(kind.resource, err)
			continue
		}
		name := kind.resource
		if kind.selector != "" && kind.scope == ofAll {
			name += ".gateways" // the same kind has objects of hypergate, too
		}
		if err := c.archive.Add(content, c.file(namespace, cmp.Or(kind.group, "core"), name+".yaml")...); err != nil {
			return err
		}
	}
	return nil
}

// file returns the path of a file with objects of a namespace, or of the cluster without one.
func (c *collector) file(namespace, group, name string) []string {
	if namespace == "" {
		return []string{c.side.Name, "cluster-scoped-resources", group, name}
	}
	return []string{c.side.Name, "namespaces", namespace, group, name}
}
