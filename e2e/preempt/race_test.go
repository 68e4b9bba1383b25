//go:build race

package preempt

// enough is the number of runs of a test with the race detector, where each takes twenty times as
// long.
const enough = 300
