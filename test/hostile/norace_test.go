//go:build !race

package hostile_test

// mostRSS is the most memory of hypergate's process that is no file's, at any moment of a step; mostHeap what is in use after a garbage collection.
const mostRSS, mostHeap = 64 << 20, 32 << 20

// memoryLimit is GOMEMLIMIT: what deploy/ sets.
func memoryLimit(deployed string) string { return deployed }
