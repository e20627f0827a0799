//go:build race

package hostile_test

// The race detector adds shadow memory to each byte. With it, the limits only detect a leak.
const mostRSS, mostHeap = 1 << 30, 256 << 20

// memoryLimit returns the GOMEMLIMIT, which is off under the race detector.
func memoryLimit(string) string { return "off" }
