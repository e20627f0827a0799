package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

func TestNewHosts(t *testing.T) {
	t.Parallel()
	names := map[*endpoint]string{}
	one := func(name string, priority, weight uint32, healthy bool) row {
		e := &endpoint{}
		names[e] = name
		return row{e, priority, weight, healthy}
	}
	for name, test := range map[string]struct {
		rows      []row
		panicMode bool
		want      string
	}{
		"all healthy":            {[]row{one("a", 0, 1, true), one("b", 0, 1, true)}, false, "a b"},
		"one unhealthy":          {[]row{one("a", 0, 1, false), one("b", 0, 1, true)}, true, "b"},
		"the next priority":      {[]row{one("a", 0, 1, false), one("b", 2, 1, true), one("c", 1, 1, true)}, true, "c"},
		"none healthy":           {[]row{one("a", 0, 1, false)}, false, ""},
		"none healthy, panicked": {[]row{one("a", 0, 1, false), one("b", 1, 1, false)}, true, "a"},
		"none":                   {nil, true, ""},
	} {
		h := newHosts(test.rows, test.panicMode)
		var got []string
		for _, e := range h.usable {
			got = append(got, names[e])
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
	if newHosts([]row{one("a", 0, 1, true), one("b", 0, 2, true)}, false).equal {
		t.Error("different weights should not count as equal")
	}
}

func TestWeightsAreObeyed(t *testing.T) {
	t.Parallel()
	for _, balancing := range []model.Balancing{model.RoundRobin, model.Random, model.LeastRequest} {
		heavy, light := &endpoint{}, &endpoint{}
		c := &cluster{config: &model.Cluster{Balancing: balancing}}
		c.hosts.Store(newHosts([]row{{heavy, 0, 9, true}, {light, 0, 1, true}}, false))
		count := 0
		for range 10_000 {
			if c.pick(nil, 1) == light {
				count++
			}
		}
		if count < 500 || count > 2000 {
			t.Errorf("policy %d: %d of 10000 requests for a weight of a tenth", balancing, count)
		}
	}
}

func TestSpool(t *testing.T) {
	t.Parallel()
	text := bytes.Repeat([]byte("0123456789"), 1000)
	ended := 0
	s := newSpool(bytes.NewReader(text), func() { ended++ })
	first := s.reader()
	half := make([]byte, 5000)
	if _, err := io.ReadFull(first, half); err != nil {
		t.Fatal(err)
	}
	second := s.reader()
	_ = first.Close()
	if _, err := first.Read(half); !errors.Is(err, errClosed) {
		t.Errorf("a closed reader: %v", err)
	}
	if got, err := io.ReadAll(second); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the second reader got %d bytes, %v", len(got), err)
	}
	if ended != 1 {
		t.Errorf("ended was called %d times", ended)
	}
	s.release()
	if s.reader() != nil || s.repeatable() {
		t.Error("there must be no reader after release")
	}
}

func TestSpoolBeyondItsLimit(t *testing.T) {
	t.Parallel()
	s := newSpool(io.LimitReader(zeros{}, 3*spoolLimit), func() {})
	fast, slow := s.reader(), s.reader()
	if n, err := io.Copy(io.Discard, fast); n != 3*spoolLimit || err != nil {
		t.Errorf("the fast reader got %d bytes, %v", n, err)
	}
	if len(s.kept) > spoolLimit {
		t.Errorf("%d bytes are kept", len(s.kept))
	}
	if _, err := slow.Read(make([]byte, 1)); !errors.Is(err, errBehind) {
		t.Errorf("the slow reader: %v", err)
	}
	if s.repeatable() {
		t.Error("the beginning is not there any more")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	obey := func(limit time.Duration) model.GRPCTimeout { return model.GRPCTimeout{Obey: true, Max: limit} }
	for name, test := range map[string]struct {
		action model.Forward
		grpc   bool
		header string
		want   time.Duration
	}{
		"no gRPC":              {model.Forward{Timeout: time.Second, GRPCTimeout: obey(0)}, false, "5S", time.Second},
		"gRPC":                 {model.Forward{Timeout: time.Second, GRPCTimeout: obey(0)}, true, "5S", 5 * time.Second},
		"gRPC without header":  {model.Forward{Timeout: time.Second, GRPCTimeout: obey(0)}, true, "", 0},
		"gRPC, limited":        {model.Forward{GRPCTimeout: obey(time.Second)}, true, "5S", time.Second},
		"gRPC, short":          {model.Forward{GRPCTimeout: obey(time.Second)}, true, "20m", 20 * time.Millisecond},
		"gRPC, limit alone":    {model.Forward{GRPCTimeout: obey(time.Second)}, true, "", time.Second},
		"gRPC, not obeyed":     {model.Forward{Timeout: time.Second}, true, "5S", time.Second},
		"gRPC, a broken value": {model.Forward{GRPCTimeout: obey(0)}, true, "xS", 0},
	} {
		if got := requestTimeout(&test.action, test.grpc, test.header); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	refused := dialError{errors.New("refused")}
	for name, test := range map[string]struct {
		policy model.Retry
		status int
		grpc   string
		err    error
		want   bool
	}{
		"connect failure":       {model.Retry{On: model.OnConnectFailure}, 0, "", refused, true},
		"reset":                 {model.Retry{On: model.OnConnectFailure}, 0, "", errReset, false},
		"reset, listed":         {model.Retry{On: model.OnReset}, 0, "", errReset, true},
		"refused stream":        {model.Retry{On: model.OnRefusedStream}, 0, "", streamError{Code: refusedStream}, true},
		"other stream error":    {model.Retry{On: model.OnRefusedStream}, 0, "", streamError{Code: 1}, false},
		"no endpoint":           {model.Retry{On: model.On5xx}, 0, "", errNoHosts, false},
		"timeout":               {model.Retry{On: model.OnGatewayError}, 0, "", errTimeout, true},
		"status":                {model.Retry{On: model.OnStatuses, Statuses: []int{503}}, 503, "", nil, true},
		"other status":          {model.Retry{On: model.OnStatuses, Statuses: []int{503}}, 500, "", nil, false},
		"5xx":                   {model.Retry{On: model.On5xx}, 500, "", nil, true},
		"gateway error":         {model.Retry{On: model.OnGatewayError}, 500, "", nil, false},
		"gRPC unavailable":      {model.Retry{On: model.OnGRPCUnavailable}, 200, "14", nil, true},
		"gRPC other status":     {model.Retry{On: model.OnGRPCUnavailable}, 200, "5", nil, false},
		"success":               {model.Retry{On: model.On5xx | model.OnGRPCUnavailable}, 200, "", nil, false},
		"unavailable, not gRPC": {model.Retry{On: model.OnGRPCUnavailable}, 503, "", nil, false},
	} {
		var response *http.Response
		if test.err == nil {
			response = &http.Response{StatusCode: test.status, Body: http.NoBody, Header: http.Header{"Grpc-Status": {test.grpc}}}
		}
		if got := retryable(&test.policy, response, test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
