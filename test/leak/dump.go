package leak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// page is the number of objects or keys per request.
const page = "500"

// Objects returns all objects of an API server, of every listable resource, as JSON of the server.
func Objects(ctx context.Context, config *rest.Config) ([]Entry, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("asking what the guest's API has: %w", err)
	}
	var out []Entry
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("asking what the guest's API has: %w", err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			objects, err := listAll(ctx, client.RESTClient(), gv, resource.Name)
			if err != nil {
				return nil, fmt.Errorf("listing the guest's %s: %w", resource.Name, err)
			}
			out = append(out, objects...)
		}
	}
	return out, nil
}

func listAll(ctx context.Context, client rest.Interface, gv schema.GroupVersion, resource string) ([]Entry, error) {
	path := "/apis/" + gv.String() + "/" + resource
	if gv.Group == "" {
		path = "/api/" + gv.Version + "/" + resource
	}
	var out []Entry
	for next := ""; ; {
		request := client.Get().AbsPath(path).SetHeader("Accept", "application/json").Param("limit", page)
		if next != "" {
			request.Param("continue", next)
		}
		data, err := request.DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var list struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			var object struct {
				Metadata struct{ Namespace, Name string } `json:"metadata"`
			}
			if err := json.Unmarshal(item, &object); err != nil {
				return nil, err
			}
			out = append(out, Entry{"the API: " +
				strings.Join([]string{resource, object.Metadata.Namespace, object.Metadata.Name}, "/"), item})
		}
		if next = list.Metadata.Continue; next == "" {
			return out, nil
		}
	}
}

// Keys returns all keys of an etcd and their values. It uses etcd's JSON gateway.
func Keys(ctx context.Context, endpoint string) ([]Entry, error) {
	all := []byte{0} // as start key and as end key, this means all keys
	var out []Entry
	for from := all; ; {
		var answer struct {
			KVs []struct {
				Key   []byte `json:"key"`
				Value []byte `json:"value"`
			} `json:"kvs"`
			More bool `json:"more"`
		}
		body, err := post(ctx, endpoint+"/v3/kv/range", map[string]any{"key": from, "range_end": all, "limit": page})
		if err != nil {
			return nil, err
		}
		err = json.NewDecoder(body).Decode(&answer)
		if err = errors.Join(err, body.Close()); err != nil {
			return nil, fmt.Errorf("reading the keys of etcd: %w", err)
		}
		for _, kv := range answer.KVs {
			// A zero byte separates key and value, so that no match spans both.
			out = append(out, Entry{"etcd: " + string(kv.Key), slices.Concat(kv.Key, []byte("\x00"), kv.Value)})
			from = append(slices.Clone(kv.Key), 0)
		}
		if !answer.More || len(answer.KVs) == 0 {
			return out, nil
		}
	}
}

// File returns the database file of an etcd, including history and unused pages.
func File(ctx context.Context, endpoint string) (Entry, error) {
	body, err := post(ctx, endpoint+"/v3/maintenance/snapshot", map[string]any{})
	if err != nil {
		return Entry{}, err
	}
	defer func() { _ = body.Close() }()
	out := Entry{Where: "etcd's file"}
	for decoder := json.NewDecoder(body); ; {
		var part struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		switch err := decoder.Decode(&part); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return Entry{}, fmt.Errorf("reading the file of etcd: %w", err)
		case len(part.Error) > 0:
			return Entry{}, fmt.Errorf("reading the file of etcd: %s", part.Error)
		}
		out.Data = append(out.Data, part.Result.Blob...)
	}
}

// post sends a request to etcd's JSON gateway. The caller closes the body. In this JSON, bytes are base64, as in Go's
// JSON.
func post(ctx context.Context, url string, question any) (io.ReadCloser, error) {
	data, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("asking etcd: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("asking etcd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking etcd: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("asking etcd: %s", response.Status), response.Body.Close())
	}
	return response.Body, nil
}
