package adversary_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hypergate/hypergate/test/adversary"
)

const (
	configAPI = "config.openshift.io/v1"
	proxies   = "proxies"
)

// TestAnAPIServerThatIgnoresSelectors checks what hypergate keeps of objects that it did not select. The guest's
// administrator runs an aggregated API server for OpenShift's configuration. hypergate requests the Proxy with the
// name "cluster", and the answer has thousands of others before it. Of each, 12 KiB are valid settings.
func TestAnAPIServerThatIgnoresSelectors(t *testing.T) {
	m, g := adversary.Mgmt(t, mgmtNS), adversary.Guest(t)
	putHCP(m, "")
	putClass(g, "demo")
	g.Serve(configAPI, proxies, "Proxy")
	g.Put(crdAPI, crdResource, "{metadata: {name: proxies.config.openshift.io}}")
	const others = 4500 // 55 MiB: a list has at most 64 MiB
	url := "http://proxy.example.com/" + strings.Repeat("u", 2000)
	other := fmt.Sprintf(`"httpProxy":"%s","httpsProxy":"%s","noProxy":"%s"`, url, url, strings.Repeat("svc.example.com,", 511))
	var lists atomic.Int64
	g.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/apis/"+configAPI+"/"+proxies {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			lists.Add(1)
			for i := range others {
				sendProxy(w, fmt.Sprint("p", i), other)
			}
			sendProxy(w, "cluster", `"httpProxy":"http://only.example.com:3128"`)
			_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"config.openshift.io/v1","kind":"Proxy",`+
				`"metadata":{"resourceVersion":"9999","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	before := liveHeap()
	run(t, m, g)
	eventually(t, "the defaults of the class have the proxy of the selected object", func() bool {
		return slices.ContainsFunc(g.Names("v1", "configmaps"), func(key string) bool {
			namespace, name, _ := strings.Cut(key, "/")
			return strings.Contains(fmt.Sprint(g.Get("v1", "configmaps", namespace, name)["data"]), "http://only.example.com:3128")
		})
	})
	held := liveHeap() - before
	t.Logf("%d lists; %d MiB more live in memory", lists.Load(), held>>20)
	if held > mostHeld {
		t.Errorf("%d MiB more live in memory, want at most %d", held>>20, mostHeld>>20)
	}
}

// sendProxy sends an event with a Proxy. status is the content of its status.
func sendProxy(w http.ResponseWriter, name, status string) {
	_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"config.openshift.io/v1","kind":"Proxy",`+
		`"metadata":{"name":"%s","uid":"uid-of-%s","resourceVersion":"5000"},"status":{%s}}}`+"\n", name, name, status)
}
