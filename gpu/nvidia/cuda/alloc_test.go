//go:build !race

package cuda

import "testing"

// The race detector makes pools drop objects, to find code that relies on them.
func TestHotPathAllocatesNothing(t *testing.T) {
	l, a := zeroes(t), NewArgs()
	if n := testing.AllocsPerRun(100, func() { hotPath(t, l, a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
