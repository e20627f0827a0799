// Package hang has the one deadline of all tests that wait for something. It only ends a test that hangs.
//
// No test may depend on how fast the machine is. So a test waits for what is to happen, in order or counted, and not for time to pass. A shorter
// deadline is an assertion about the machine; what depends on time is tested with a clock that the test steps, or in testing/synctest.
package hang

import (
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

// Deadline is after how long a test that waits gives up. It is as long as a loaded machine needs for the slowest single step, several times over; a
// test that passes never waits for it.
const Deadline = 5 * time.Minute

// Gomega returns a Gomega for a test, or for a part of one, whose Eventually gives up at Deadline.
func Gomega(t types.GomegaTestingT) *gomega.WithT {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(Deadline)
	return g
}
