package proxies

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// istiods answers questions one after the other, as a load balancer passes them on. The last name answers all others.
// "-" refuses, and "~" answers nothing until the question is given up.
func istiods(order ...string) func(context.Context) (Answer, error) {
	var asked atomic.Int32
	return func(ctx context.Context) (Answer, error) {
		switch name := order[min(int(asked.Add(1)), len(order))-1]; name {
		case "-":
			return Answer{}, errors.New("refused")
		case "~":
			<-ctx.Done()
			return Answer{}, context.Cause(ctx)
		default:
			return Answer{Istiod: name, Omitted: 1, Proxies: []Proxy{{Name: "gw-of-" + name}, {Name: "moved"}}}, nil
		}
	}
}

// TestAskAll checks that the answers of all istiods are merged, wherever each connection leads, and that one istiod
// that refuses or is silent does not hide the others.
func TestAskAll(t *testing.T) {
	t.Parallel()
	both := []string{"a", "b"}
	for name, test := range map[string]struct {
		order, wanted, answered []string
		failure                 string
	}{
		"one":                          {[]string{"a"}, []string{"a"}, []string{"a"}, ""},
		"two":                          {[]string{"a", "b"}, both, both, ""},
		"two, of which one is rare":    {[]string{"a", "a", "a", "a", "a", "a", "b", "a"}, both, both, ""},
		"two, which are not known":     {[]string{"a", "a", "a", "a", "b", "a"}, nil, both, ""},
		"one of two is never reached":  {[]string{"a"}, both, []string{"a"}, ""},
		"one of two refuses":           {[]string{"-", "a", "-"}, both, []string{"a"}, "refused"},
		"both refuse":                  {[]string{"-"}, both, nil, "refused"},
		"another one than those known": {[]string{"c"}, both, []string{"c"}, ""},
	} {
		got, err := askAll(t.Context(), test.wanted, istiods(test.order...))
		if test.answered == nil {
			if err == nil || !strings.Contains(err.Error(), test.failure) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Istiods, test.answered) || got.Omitted != len(test.answered) ||
			(got.Failure == nil) != (test.failure == "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		var want []Proxy
		for _, istiod := range test.answered {
			want = append(want, Proxy{Name: "gw-of-" + istiod, Istiod: istiod})
		}
		for _, istiod := range test.answered {
			want = append(want, Proxy{Name: "moved", Istiod: istiod})
		}
		if !reflect.DeepEqual(got.Proxies, want) {
			t.Errorf("%s: %+v, want %+v", name, got.Proxies, want)
		}
	}
}

// TestTheAnswersOfAllIstiodsAreLimited: an istiod can answer each question with another name. One that answers all with
// the same name counts once.
func TestTheAnswersOfAllIstiodsAreLimited(t *testing.T) {
	t.Parallel()
	for _, names := range []int{1, asksAtOnce * mostRounds} {
		var asked atomic.Int32
		got, err := askAll(t.Context(), []string{"wanted"}, func(context.Context) (Answer, error) {
			return Answer{Istiod: fmt.Sprint(int(asked.Add(1)) % names), kept: mostKept}, nil
		})
		want := min(names, mostKeptOfAll/mostKept)
		if err != nil || len(got.Istiods) != want || errors.Is(got.Failure, errLarge) != (want < names) {
			t.Errorf("%d names: the answers of %v are kept, %v, %v", names, got.Istiods, got.Failure, err)
		}
	}
}

// TestASilentIstiod checks that an istiod that does not answer does not delay two that do.
func TestASilentIstiod(t *testing.T) {
	t.Parallel()
	got, err := askAll(t.Context(), []string{"a", "b"}, istiods("~", "a", "b", "~"))
	if err != nil || !slices.Equal(got.Istiods, []string{"a", "b"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSlowIstiods checks that questions without an answer leave time for others, and that the error says what happened.
func TestSlowIstiods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		order, answered []string
		err             error
	}{
		"the first questions":         {[]string{"~", "~", "~", "~", "a", "b", "a", "a"}, []string{"a", "b"}, nil},
		"all questions":               {[]string{"~"}, nil, errSlow},
		"all but those to one istiod": {[]string{"~", "a", "~"}, []string{"a"}, errSlow},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := askAll(ctx, []string{"a", "b"}, istiods(test.order...))
			if !slices.Equal(got.Istiods, test.answered) || test.err != nil && !errors.Is(cmp.Or(err, got.Failure), test.err) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		})
	}
}

// TestAQuestionThatIsGivenUp checks that the error is the cause, and names the address.
func TestAQuestionThatIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, giveUp := context.WithCancelCause(t.Context())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		giveUp(errSlow)
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	_, err := Ask(ctx, Question{
		Address: "example.com:443", ConnectTo: server.Listener.Addr().String(),
		Roots: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	if want := "asking istiod at example.com:443: " + errSlow.Error(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTheNameOfIstiod checks which name is read from an answer.
func TestTheNameOfIstiod(t *testing.T) {
	t.Parallel()
	for identifier, want := range map[string]string{
		`{"Component":"istiod","ID":"istiod-x-1","Info":{"version":"1.29"}}`: "istiod-x-1",
		`{"Component":"istiod","ID":"hosted:istiod-x-1"}`:                    "istiod-x-1",
		`{"ID":"a\u001b[2J"}`:             "a [2J",
		`{"ID":["x"]}`:                    "",
		`{}`:                              "",
		"istiod":                          "",
		"":                                "",
		strings.Repeat("x", longestPlane): "",
	} {
		message, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
			TypeUrl: syncz, ControlPlane: &corev3.ControlPlane{Identifier: identifier},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decoded(message); err != nil || got.Istiod != want {
			t.Errorf("%.80s: %q, %v", identifier, got.Istiod, err)
		}
	}
}
