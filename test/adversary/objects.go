package adversary

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// change is one event of a watch, with the object before the event.
type change struct {
	kind     string // ADDED, MODIFIED or DELETED
	now, old object
}

// collection holds the objects of one kind, in all namespaces.
type collection struct {
	key, apiVersion, kind string
	objects               map[string]object // keys: <namespace>/<name>
	watchers              map[chan change]bool
}

// watchBuffer is the number of changes that a watch may be behind. Beyond that the watch ends, as kube-apiserver ends
// the watch of a slow client.
const watchBuffer = 4096

// Serve makes the server serve a kind.
func (s *Server) Serve(apiVersion, resource, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := apiVersion + "/" + resource; s.collections[key] == nil {
		s.collections[key] = &collection{key, apiVersion, kind, map[string]object{}, map[chan change]bool{}}
	}
}

// Put stores an object, given as YAML without apiVersion and kind. It replaces an object with the same name, but
// keeps the UID.
func (s *Server) Put(apiVersion, resource, text string) {
	var o object
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("a test stores invalid YAML: %v\n%s", err, text))
	}
	s.PutObject(apiVersion, resource, o)
}

// PutObject stores an object as Put does, but takes it as a map.
func (s *Server) PutObject(apiVersion, resource string, o map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[apiVersion+"/"+resource]
	written := s.put(c, normal(o))
	delete(s.applied, c.key+" "+keyOf(written)) // the next apply must write again, because the object has changed
}

// Delete removes an object, if it exists.
func (s *Server) Delete(apiVersion, resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.collections[apiVersion+"/"+resource], namespace+"/"+name)
}

// Names returns the objects of a kind, each as <namespace>/<name>, sorted.
func (s *Server) Names(apiVersion, resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.collections[apiVersion+"/"+resource].objects))
}

// Get returns a copy of an object, or nil if it does not exist.
func (s *Server) Get(apiVersion, resource, namespace, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.collections[apiVersion+"/"+resource].objects[namespace+"/"+name])
}

// Objects returns copies of all objects, with keys of the form "<group/version>/<resource> <namespace>/<name>".
func (s *Server) Objects() map[string]map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]map[string]any{}
	for key, c := range s.collections {
		for name, o := range c.objects {
			out[key+" "+name] = clone(o)
		}
	}
	return out
}

// Backup is a copy of all objects, with the server's version at that time.
type Backup struct {
	Version int
	objects map[string]map[string]object
}

// Backup returns a copy of all objects.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Backup{Version: s.version, objects: map[string]map[string]object{}}
	for key, c := range s.collections {
		out.objects[key] = cloneAll(c.objects)
	}
	return out
}

// Restore replaces all objects with a backup, as a restored etcd does. All watches end, and versions continue from
// that of the backup.
func (s *Server) Restore(b Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = b.Version
	for key, c := range s.collections {
		c.objects = cloneAll(b.objects[key])
	}
	s.applied = map[string]map[string]string{}
	s.drop()
}

// Drop ends all watches.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

// Pass increments the version by n, as n writes of others would.
func (s *Server) Pass(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += n
}

// Version returns the version of the last write.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *Server) drop() {
	close(s.dropped)
	s.dropped = make(chan struct{})
}

func (s *Server) put(c *collection, o object) object {
	m := meta(o)
	key := keyOf(o)
	old := c.objects[key]
	s.version++
	kind := "MODIFIED"
	if old == nil {
		kind = "ADDED"
		if m["uid"] == nil {
			s.lastUID++
			m["uid"] = fmt.Sprintf("uid-%d", s.lastUID)
		}
		if m["creationTimestamp"] == nil {
			m["creationTimestamp"] = now()
		}
	} else {
		m["uid"] = meta(old)["uid"]
	}
	m["resourceVersion"] = strconv.Itoa(s.version)
	o["apiVersion"], o["kind"] = c.apiVersion, c.kind
	c.objects[key] = o
	c.send(change{kind, clone(o), clone(old)})
	return o
}

func (s *Server) remove(c *collection, key string) {
	old := c.objects[key]
	if old == nil {
		return
	}
	delete(c.objects, key)
	s.version++
	gone := clone(old)
	meta(gone)["resourceVersion"] = strconv.Itoa(s.version)
	c.send(change{"DELETED", gone, clone(old)})
}

func (c *collection) send(e change) {
	for watcher := range c.watchers {
		select {
		case watcher <- e:
		default:
			close(watcher)
			delete(c.watchers, watcher)
		}
	}
}

// normal returns a copy with the number types that clone accepts.
func normal(o object) object {
	out := object{}
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("a test stores invalid JSON: %v", err))
	}
	return out
}

func clone(o object) object {
	if o == nil {
		return nil
	}
	return runtime.DeepCopyJSON(o)
}

func cloneAll(all map[string]object) map[string]object {
	out := make(map[string]object, len(all))
	for key, o := range all {
		out[key] = clone(o)
	}
	return out
}

// keyOf returns <namespace>/<name>.
func keyOf(o object) string {
	m := meta(o)
	return text(m["namespace"]) + "/" + text(m["name"])
}

func meta(o object) object {
	m, ok := o["metadata"].(object)
	if !ok {
		m = object{}
		o["metadata"] = m
	}
	return m
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
