package watch_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/watch"
)

// TestStateOf checks which errors mean that the API server does not answer.
func TestStateOf(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want watch.State
	}{
		"none":                  {nil, watch.Works},
		"refused":               {&url.Error{Op: "Get", Err: errors.New("connection refused")}, watch.NoAnswer},
		"timed out":             {fmt.Errorf("listing: %w", context.DeadlineExceeded), watch.NoAnswer},
		"too many requests":     {apierrors.NewTooManyRequests("", 1), watch.NoAnswer},
		"etcd is away":          {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), watch.NoAnswer},
		"forbidden":             {fmt.Errorf("listing: %w", apierrors.NewForbidden(pods, "", nil)), watch.Fails},
		"unauthorized":          {apierrors.NewUnauthorized(""), watch.Fails},
		"not found":             {apierrors.NewNotFound(pods, ""), watch.Fails},
		"more than is read":     {&watch.LimitError{}, watch.Fails},
		"a body that is longer": {&answer.TooLongError{}, watch.Fails},
	} {
		if got := watch.StateOf(tc.err); got != tc.want {
			t.Errorf("%s: state %d, want %d", name, got, tc.want)
		}
	}
}

// TestAnOutageIsOneLine checks what the watches of one cluster log while its API server is away, and after that.
func TestAnOutageIsOneLine(t *testing.T) {
	t.Parallel()
	const watches = 15
	var lines []string
	log := funcr.New(func(_, args string) {
		_, message, _ := strings.Cut(args, `"msg"="`)
		lines = append(lines, strings.Split(message, `"`)[0])
	}, funcr.Options{})
	outage := watch.OutageFrom(watch.WithOutage(t.Context()))
	var all []*watch.Lines
	for range watches {
		all = append(all, outage.Lines())
	}
	each := func(state watch.State) {
		for range 3 { // attempts
			for _, one := range all {
				one.Log(log, state, "A watch fails", "err", "why")
			}
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("%s: -want +got:\n%s", when, diff)
		}
		lines = nil
	}
	const away = "The API server does not answer; until it does, the watched objects can be out of date. " +
		"Other watches without an answer are logged at level 1"
	each(watch.Works)
	expect("from the start")
	for range 2 {
		each(watch.NoAnswer)
		expect("an outage", away)
		each(watch.Works)
		expect("its end", "The API server answers again")
	}
	each(watch.NoAnswer)
	all[0].Log(log, watch.Fails, "A watch fails")
	expect("an API server that answers and refuses", away, "The API server answers again", "A watch fails")
	all[0].Log(log, watch.Works, "")
	expect("and permits", "The watch works again")
	all[1].Log(log, watch.NoAnswer, "")
	expect("the others still wait for an answer, which is not a new outage")
}

// TestOutagesAreSeparate checks that watches without a common outage log a line each.
func TestOutagesAreSeparate(t *testing.T) {
	t.Parallel()
	lines := 0
	log := funcr.New(func(_, _ string) { lines++ }, funcr.Options{})
	for range 2 {
		watch.OutageFrom(t.Context()).Lines().Log(log, watch.NoAnswer, "A watch fails")
	}
	if lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}
