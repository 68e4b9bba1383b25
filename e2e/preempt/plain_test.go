//go:build !race

package preempt

// enough is how many runs a test does: so many that two thousand of them are
// evicted.
const enough = 3300
