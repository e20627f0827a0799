package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// asksAtOnce is the number of questions of a round. They are open at the same time, so that also a load balancer
	// that prefers the istiod with the fewest connections passes them to all. A relay of the tunnel passes them to each
	// in turn.
	asksAtOnce = 4
	// mostRounds limits the rounds if the names of the istiods are known, manyRounds if they are not. Each connection
	// leads to any istiod. The probability that 20 connections lead to the same one of two is 1 in 524,288, and 1 in
	// 128 for 8 connections.
	mostRounds = 5
	manyRounds = 2
	// mostKeptOfAll is the limit of the memory of all answers, in bytes. An istiod can answer each question with
	// another name.
	mostKeptOfAll = 4 * mostKept
)

// All is what the istiods answer that can be reached at one address.
type All struct {
	// Proxies are sorted by name, then by istiod. A proxy that has just connected to another istiod can be in it twice.
	Proxies []Proxy
	// Omitted is the sum over the istiods. See Answer.
	Omitted int
	// Istiods are the names of the istiods that answered, sorted.
	Istiods []string
	// Failure is an error of a question that had no answer. It does not say which istiod it was.
	Failure error
}

// AskAll asks the same question until each of the wanted istiods has answered, by the names of their pods, and merges
// the answers. If none is wanted, it asks so often that each of two istiods probably answers. It returns an error only
// if no istiod answers. ctx limits the time: a round takes at most half of what is left, so that one istiod that
// accepts connections and does not answer cannot use all of it.
func AskAll(ctx context.Context, q Question, wanted []string) (All, error) {
	return askAll(ctx, wanted, func(ctx context.Context) (Answer, error) { return Ask(ctx, q) })
}

func askAll(ctx context.Context, wanted []string, ask func(context.Context) (Answer, error)) (All, error) {
	answers, rounds := map[string]Answer{}, mostRounds
	if len(wanted) == 0 {
		rounds = manyRounds
	}
	isComplete := func() bool {
		return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(name string) bool { _, ok := answers[name]; return !ok })
	}
	var failure error
	for round := 0; round < rounds && ctx.Err() == nil && !isComplete(); round++ {
		if err := askRound(ctx, ask, answers, isComplete); err != nil {
			failure = err
		}
	}
	if len(answers) == 0 {
		return All{}, cmp.Or(failure, context.Cause(ctx))
	}
	return merged(answers, failure), nil
}

// errLarge is the error of an answer that is left out.
var errLarge = fmt.Errorf("with it, the answers of all istiods need more than %d MiB of memory: its answer is left out", mostKeptOfAll>>20)

// keep adds an answer, unless all of them are too large. It replaces an earlier one of the same istiod.
func keep(answers map[string]Answer, a Answer) error {
	sum := a.kept
	for name, other := range answers {
		if name != a.Istiod {
			sum += other.kept
		}
	}
	if sum > mostKeptOfAll {
		return errLarge
	}
	answers[a.Istiod] = a
	return nil
}

// errSlow is the error of a question that a round has given up.
var errSlow = errors.New("it does not answer in time")

// askRound asks several times at once. It returns when all questions have ended, or all answers are there.
func askRound(
	ctx context.Context, ask func(context.Context) (Answer, error), answers map[string]Answer, isComplete func() bool,
) (failure error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if deadline, ok := ctx.Deadline(); ok {
		half := time.AfterFunc(time.Until(deadline)/2, func() { cancel(errSlow) })
		defer half.Stop()
	}
	type result struct {
		answer Answer
		err    error
	}
	results := make(chan result, asksAtOnce)
	for range asksAtOnce {
		go func() {
			answer, err := ask(ctx)
			results <- result{answer, err}
		}()
	}
	for range asksAtOnce {
		r := <-results
		if r.err == nil {
			r.err = keep(answers, r.answer)
		}
		switch {
		case r.err != nil:
			failure = r.err
		case isComplete():
			return failure
		}
	}
	return failure
}

// merged returns the answers as one.
func merged(answers map[string]Answer, failure error) All {
	out := All{Proxies: []Proxy{}, Failure: failure}
	for name, answer := range answers {
		out.Istiods = append(out.Istiods, name)
		out.Omitted += answer.Omitted
		for _, p := range answer.Proxies {
			p.Istiod = name
			out.Proxies = append(out.Proxies, p)
		}
	}
	slices.Sort(out.Istiods)
	slices.SortFunc(out.Proxies, func(a, b Proxy) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Istiod, b.Istiod)) })
	return out
}
