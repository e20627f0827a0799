package hang

import (
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

// round is the shortest time between two looks of Within.
const round = 100 * time.Millisecond

// Within waits until get returns what want matches, and fails beyond a limit. It counts the limit in rounds of 100 ms.
// In each round it calls work, which sends requests like those that the tested code needs. On a busy machine the rounds
// take longer, as the tested code does. On an idle one, the limit is a limit of time.
//
// It returns how long it took, in rounds.
func Within[T any](g gomega.Gomega, limit time.Duration, work func(), get func() T, want types.GomegaMatcher) time.Duration {
	for took := time.Duration(0); ; took += round {
		got := get()
		matches, err := want.Match(got)
		if err == nil && matches {
			return took
		}
		if took >= limit {
			g.Expect(got).To(want, "after %s", limit)
			return took
		}
		work()
		<-time.After(round)
	}
}
