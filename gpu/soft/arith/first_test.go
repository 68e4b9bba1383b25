package arith

import (
	"math"
	"testing"
)

func TestFmaRoundsOnce(t *testing.T) {
	a, c := float32(1+0x1p-12), float32(0x1p-80)
	if got, want := math.Float32bits(FmaF32(a, a, c)), uint32(0x3f801001); got != want {
		t.Errorf("FmaF32(1+2^-12, 1+2^-12, 2^-80) = %#x, want %#x", got, want)
	}
}
