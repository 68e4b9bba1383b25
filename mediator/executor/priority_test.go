package executor

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestExecutorsHaveAChoice: executors keep off the polling thread's processor where they have two
// others at least.
func TestExecutorsHaveAChoice(t *testing.T) {
	for _, c := range []struct {
		may  []int
		cpu  int
		want bool
	}{
		{[]int{0}, 0, false},
		{[]int{0, 1}, 1, false}, // a host of two processors
		{[]int{0, 1, 2}, 2, true},
		{[]int{3, 7, 9}, 9, true},
		{[]int{0, 1}, 5, true}, // it is none of those that they may use
		{[]int{0, 1, 2, 3, 4, 5, 6, 7}, 7, true},
	} {
		var set unix.CPUSet
		for _, cpu := range c.may {
			set.Set(cpu)
		}
		if got := without(&set, c.cpu); got != c.want || got && set.IsSet(c.cpu) {
			t.Errorf("of %v without %d: %v, want %v; it has %d", c.may, c.cpu, got, c.want, set.Count())
		}
	}
}
