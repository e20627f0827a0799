//go:build race

package hostile_test

// Under the race detector each byte has shadow memory beside it: the bounds end a leak, and are no figure.
const mostRSS, mostHeap = 1 << 30, 256 << 20

// memoryLimit is GOMEMLIMIT: without a limit under the race detector.
func memoryLimit(string) string { return "off" }
