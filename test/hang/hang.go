// Package hang defines the deadline of all tests that wait for something. The deadline only ends a test that hangs.
//
// A test must not depend on the speed of the machine. So a test waits for events, in order or counted, and not for
// time. A shorter deadline would be an assertion about the machine. Behaviour that depends on time is tested with a
// fake clock or in testing/synctest. If real servers are needed, Within counts the time in rounds of requests.
package hang

import (
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

// Deadline is the time after which a waiting test fails. It is several times as long as the slowest single step on a
// loaded machine. A passing test never waits that long.
const Deadline = 5 * time.Minute

// Gomega returns a Gomega for a test or a part of one. Its Eventually fails after Deadline.
func Gomega(t types.GomegaTestingT) *gomega.WithT {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(Deadline)
	return g
}
