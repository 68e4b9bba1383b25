//go:build race

package preempt

// enough is how many runs a test does where each takes twenty times as long.
const enough = 300
