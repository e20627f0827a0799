// Package hostile runs hypergate for some time against a guest that lies. After each step it checks the invariants
// that must hold whatever a guest does.
//
// # Responsibility
//
// TestHostile makes one move after another. A seed decides their order. A move has two parts: a change of the guest's
// behaviour, and the function that undoes it. Several moves are active at once. Another seed combines other moves.
//
// A move answers requests in the guest's place, changes the objects in answers and watches, or changes stored objects
// as the guest's administrator can. Changes of answers follow the schemas of the kinds that hypergate reads. The
// management side is honest.
//
// # Workflow
//
//	make hostile SEED=7 DURATION=10m
//
// Each run makes each move once before it repeats any, and fails otherwise. CI runs it for 30 seconds with a fixed
// seed, under the race detector, or for as long as all moves take once. To add a new lie, add a row to moves or
// objectMoves.
//
// # Invariants
//
// After each step:
//
//   - hypergate runs.
//   - Its memory, its goroutines and its log are bounded.
//   - It wrote only those objects on the management side that an honest guest leads to, and not often.
//   - After a pause, it wrote only its own Lease, the report of the pause, and what was under way.
//   - It sent the guest no data of the management side.
//   - Its conditions have one line and a bounded length.
//
// In the end the guest is honest, and both sides return to their earlier state. The log, the requests and the writes of
// the whole run are bounded, too. Each process of hypergate ended with the exit code 0.
//
// hypergate runs in its own process, so that its memory can be measured. The process is the test binary, started
// again.
package hostile
