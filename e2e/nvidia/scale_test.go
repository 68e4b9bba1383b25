package main

import (
	"testing"
	"time"
)

// Kernels are not made by lengths that are but noise.
func TestLengthsTell(t *testing.T) {
	for took, want := range map[[2]time.Duration]bool{
		{100, 500}: true, {100, 120}: false, {500, 100}: false, {0, 100}: false, {-100, 100}: false, {-200, -100}: false,
	} {
		if got := tells(took); got != want {
			t.Errorf("%v: %v", took, got)
		}
	}
}
