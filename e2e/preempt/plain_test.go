//go:build !race

package preempt

// enough is the number of runs of a test, chosen so that two thousand of them are evicted.
const enough = 3300
