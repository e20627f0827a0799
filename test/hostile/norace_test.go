//go:build !race

package hostile_test

// mostRSS is the limit of the process's anonymous memory at any time in a step. mostHeap is the limit of the heap
// that is kept.
const mostRSS, mostHeap = 64 << 20, 32 << 20

// memoryLimit returns the GOMEMLIMIT that deploy/ sets.
func memoryLimit(deployed string) string { return deployed }
