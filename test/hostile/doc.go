// Package hostile runs hypergate for a while against a guest that lies, and checks after each step what holds whatever a guest does.
//
// # Responsibility
//
// TestHostile makes one move after another, in an order that a seed decides: what the guest does from then on, and what undoes it. Several are
// made at once. A move answers requests in the guest's place, changes what its answers and watches show (by the schemas of the kinds that
// hypergate reads), or changes objects as the guest's administrator can. The management side is honest.
//
// # Workflow
//
//	make hostile SEED=7 DURATION=10m
//
// CI runs 30 seconds of it with a fixed seed, under the race detector. A new way to lie is one more row of moves or objectMoves.
//
// # Invariants
//
// After each step: hypergate runs; its memory, its goroutines and what it logs are bounded; it wrote nothing on the management side that an
// honest guest does not lead to, and nothing after it reported a pause; it sent the guest nothing that is the management side's; and its
// conditions are of one line and bounded. In the end the guest is honest, and both sides become what they were before.
//
// hypergate is a process of its own, the test binary started again, so that its memory is its own.
package hostile
