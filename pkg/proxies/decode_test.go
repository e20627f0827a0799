package proxies

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// answer returns a message with proxies, as istiod sends it.
func answer(tb testing.TB, configs ...*statusv3.ClientConfig) []byte {
	tb.Helper()
	response := &discoveryv3.DiscoveryResponse{VersionInfo: "1", TypeUrl: syncz, Nonce: "n"}
	for _, config := range configs {
		resource, err := anypb.New(config)
		if err != nil {
			tb.Fatal(err)
		}
		response.Resources = append(response.Resources, resource)
	}
	out, err := proto.Marshal(response)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func config(id string, types ...*statusv3.ClientConfig_GenericXdsConfig) *statusv3.ClientConfig {
	return &statusv3.ClientConfig{
		Node: &corev3.Node{Id: id, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"ISTIO_VERSION": structpb.NewStringValue("1.2.3"), "NAMESPACE": structpb.NewStringValue("demo"),
		}}},
		GenericXdsConfigs: types,
	}
}

// TestDecode checks an answer that is encoded with Envoy's own types.
func TestDecode(t *testing.T) {
	t.Parallel()
	got, err := decoded(answer(
		t,
		config("router~10.0.0.1~gw-b.demo~demo.svc.cluster.local"),
		config("router~10.0.0.1~gw-a.demo~demo.svc.cluster.local",
			&statusv3.ClientConfig_GenericXdsConfig{
				TypeUrl: "type.googleapis.com/envoy.config.listener.v3.Listener", ConfigStatus: statusv3.ConfigStatus_ERROR,
				ErrorState: &adminv3.UpdateFailureState{Details: "no\x1b[2J such cluster"},
			},
			&statusv3.ClientConfig_GenericXdsConfig{
				TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", ConfigStatus: statusv3.ConfigStatus_SYNCED,
			},
			&statusv3.ClientConfig_GenericXdsConfig{TypeUrl: "S", ConfigStatus: statusv3.ConfigStatus_STALE},
			&statusv3.ClientConfig_GenericXdsConfig{TypeUrl: "N", ConfigStatus: statusv3.ConfigStatus_NOT_SENT},
			&statusv3.ClientConfig_GenericXdsConfig{TypeUrl: "Z", ConfigStatus: 77},
		)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Proxy{
		{Name: "gw-a.demo", Version: "1.2.3", Types: []Type{
			{Name: "Cluster", State: Synced},
			{Name: "Listener", State: Rejected, Error: "no [2J such cluster"},
			{Name: "N", State: NotSent},
			{Name: "S", State: Stale},
			{Name: "Z", State: Unknown},
		}},
		{Name: "gw-b.demo", Version: "1.2.3"},
	}
	if !reflect.DeepEqual(got.Proxies, want) || got.Omitted > 0 || got.Istiod != "" {
		t.Errorf("%+v", got)
	}
}

// decoded decodes a message that has all of its bytes.
func decoded(message []byte) (Answer, error) {
	return decode(&io.LimitedReader{R: bytes.NewReader(message), N: int64(len(message))}, nil)
}

// TestHostileProxies checks that one pod cannot hide another one, and cannot be taken for one of another namespace.
func TestHostileProxies(t *testing.T) {
	t.Parallel()
	const good = "router~10.0.0.1~gw.demo~demo.svc.cluster.local"
	crowd := make([]*statusv3.ClientConfig, mostProxies+1)
	for i := range crowd {
		crowd[i] = config("router~10.0.0.1~" + strconv.Itoa(i) + ".demo~d")
	}
	crowd = append(crowd, config(good))
	only := func(name string) bool { return name == "gw.demo" }
	rejects := config(good, &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: "a.b", ErrorState: &adminv3.UpdateFailureState{Details: strings.Repeat("x", longestProxy)},
	})
	for name, test := range map[string]struct {
		configs []*statusv3.ClientConfig
		wanted  func(string) bool
		want    string
		omitted int
	}{
		"a long node ID":          {[]*statusv3.ClientConfig{config(strings.Repeat("~", 4<<20)), config(good)}, nil, "gw.demo", 1},
		"a long rejection":        {[]*statusv3.ClientConfig{rejects, config(good)}, nil, "gw.demo", 1},
		"another namespace":       {[]*statusv3.ClientConfig{config("router~10.0.0.1~gw.other~d"), config(good)}, nil, "gw.demo", 1},
		"no namespace":            {[]*statusv3.ClientConfig{{Node: &corev3.Node{Id: good}}, config(good)}, nil, "gw.demo", 1},
		"a namespace as a suffix": {[]*statusv3.ClientConfig{config("router~10.0.0.1~gw.xdemo~d"), config(good)}, nil, "gw.demo", 1},
		"a crowd":                 {crowd, only, "gw.demo", 0},
	} {
		message := answer(t, test.configs...)
		if _, err := decode(&io.LimitedReader{R: bytes.NewReader(message), N: longestAnswer}, test.wanted); err == nil {
			t.Errorf("%s: an answer that ends early is accepted", name)
		}
		got, err := decode(&io.LimitedReader{R: bytes.NewReader(message), N: int64(len(message))}, test.wanted)
		if err != nil || len(got.Proxies) != 1 || got.Proxies[0].Name != test.want || got.Omitted != test.omitted {
			t.Errorf("%s: %d proxies, %d omitted, %v", name, len(got.Proxies), got.Omitted, err)
		}
	}
	if got, err := decoded(answer(t, crowd...)); err != nil || len(got.Proxies) != mostProxies || got.Omitted != 2 {
		t.Errorf("a crowd: %d proxies, %d omitted, %v", len(got.Proxies), got.Omitted, err)
	}
}

// TestKeptProxiesAreLimited checks the memory of an answer. One pod has opened many streams, with long node IDs and
// long rejections. It is not parallel, because it measures the heap.
func TestKeptProxiesAreLimited(t *testing.T) {
	rejected := make([]*statusv3.ClientConfig_GenericXdsConfig, mostTypes)
	for i := range rejected {
		rejected[i] = &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: "a." + strconv.Itoa(i), ErrorState: &adminv3.UpdateFailureState{Details: strings.Repeat("x", longestText)},
		}
	}
	const streams, room = 1000, 4 << 20
	for name, one := range map[string]*statusv3.ClientConfig{
		"rejections": config("router~10.0.0.1~gw.demo~d", rejected...),
		"node IDs":   config("router~" + strings.Repeat("1", 100<<10) + "~gw.demo~d"),
	} {
		message := answer(t, slices.Repeat([]*statusv3.ClientConfig{one}, streams)...)
		before := liveHeap()
		got, err := decoded(message)
		kept := liveHeap() - before
		if err != nil || len(got.Proxies) == 0 || len(got.Proxies)+got.Omitted != streams {
			t.Errorf("%s: %d proxies, %d omitted, %v", name, len(got.Proxies), got.Omitted, err)
		}
		if kept > mostKept+room {
			t.Errorf("%s: %d MiB are kept, more than %d", name, kept>>20, (mostKept+room)>>20)
		}
		runtime.KeepAlive(got)
		runtime.KeepAlive(message)
	}
}

// liveHeap returns the bytes of all objects that are in use.
func liveHeap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestTheRequest checks that the request is one that Envoy's own types decode.
func TestTheRequest(t *testing.T) {
	t.Parallel()
	var got discoveryv3.DiscoveryRequest
	if err := proto.Unmarshal(discoveryRequest("ingress"), &got); err != nil {
		t.Fatal(err)
	}
	fields := got.GetNode().GetMetadata().GetFields()
	if got.GetTypeUrl() != syncz || got.GetNode().GetId() != "sidecar~0.0.0.0~hypergate-proxies.ingress~ingress.svc.cluster.local" ||
		fields["GENERATOR"].GetStringValue() != "event" || fields["NAMESPACE"].GetStringValue() != "ingress" || len(fields) != 3 {
		t.Errorf("%v", &got)
	}
}

// TestFrames checks messages of gRPC that end early, are compressed, or too long.
func TestFrames(t *testing.T) {
	t.Parallel()
	message, err := unframed(bytes.NewReader(framed([]byte("abc"))))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(message); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := unframed(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for want, frame := range map[string]string{
		"compressed": "\x01\x00\x00\x00\x00", "more than": "\x00\xff\xff\xff\xff", "unexpected": "\x00\x00",
	} {
		if _, err := unframed(strings.NewReader(frame)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", frame, err)
		}
	}
}

// FuzzDecode checks that any answer is decoded or refused, and that all text is limited.
func FuzzDecode(f *testing.F) {
	f.Add(answer(f, config("router~10.0.0.1~gw.demo~d", &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: "a.b"})))
	f.Add([]byte("\x12\x80"))
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x08\x01\x11"))
	f.Fuzz(func(t *testing.T, message []byte) {
		found, err := decoded(message)
		if err != nil {
			return
		}
		if len(found.Istiod) > longestText {
			t.Errorf("%q", found.Istiod)
		}
		for _, p := range found.Proxies {
			if len(p.Name) > longestText || len(p.Version) > longestText || len(p.Types) > mostTypes {
				t.Errorf("%+v", p)
			}
			for _, one := range p.Types {
				if len(one.Name) > longestText || len(one.Error) > longestText {
					t.Errorf("%+v", one)
				}
			}
		}
	})
}
