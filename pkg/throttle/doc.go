// Package throttle limits how often something happens. It has three types, one for each question:
//
//   - Limiter: how often may this be done? A burst of actions in a row, and then one per interval.
//   - Backoff: when is this tried again? The delay doubles with each failure.
//   - Debounce: does this state last? A state is reported only after it has lasted, or after a maximum time of changes.
//
// # Workflow
//
// Callers ask for the remaining time first (Wait), and requeue after it if it is not zero. They report what they did
// afterwards (Take, Failed, Reset). Asking changes neither a Limiter nor a Backoff.
//
// # Invariants
//
//   - No type reads the clock. Every method takes the time, so that tests need no sleep.
//   - No type starts a goroutine or a timer.
//   - The types are not safe for concurrent use, except Limiter.
package throttle
