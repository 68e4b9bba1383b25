package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// TestAdaptiveEvery tests EffiSha §6.3: "making several checks per time slice (we use 10 in our
// experiments)", with l "the estimated length of each iteration of the device while loop".
func TestAdaptiveEvery(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		slice, iteration time.Duration
		checks           int
		want             uint32
	}{
		{1000 * us, us, 10, 100},       // ten checks in the slice's thousand iterations
		{1000 * us, us, 20, 50},        // more checks; with the printed formula r·L/l there would be fewer
		{1000 * us, 50 * us, 10, 2},    // twenty iterations: a check at every second one
		{1000 * us, 200 * us, 10, 1},   // five iterations: a check at each
		{1000 * us, 5000 * us, 10, 1},  // an iteration longer than the slice
		{0, us, 10, 1}, {us, 0, 10, 1}, // no estimate: a check at each iteration
		{time.Hour, 1, 1, abi.MaxPreemptEvery}, // the limit of a launch
	} {
		if got := adaptiveEvery(c.slice, c.iteration, c.checks); got != c.want {
			t.Errorf("adaptiveEvery(%v, %v, %d) = %d, want %d", c.slice, c.iteration, c.checks, got, c.want)
		}
	}
}

// TestAmortize tests FLEP §4.1: "automatically find the smallest value for L through offline tuning
// (trying different values from small to large) such that the runtime overhead introduced by the
// transformation is less than 4%".
func TestAmortize(t *testing.T) {
	var tried []uint32
	model := func(every uint32) (float64, error) { // a check costs as much as half a task
		tried = append(tried, every)
		return 100 * (1 + 0.5/float64(every)), nil
	}
	every, err := amortize(100, 0.04, 1024, model)
	if err != nil || every != 16 || !slices.Equal(tried, []uint32{1, 2, 4, 8, 16}) {
		t.Errorf("L = %d, %v, after %d", every, err, tried)
	}
	if every, err := amortize(100, 0.0001, 64, model); err != nil || every != 0 {
		t.Errorf("a bound that none keeps: L = %d, %v", every, err)
	}
	broken := errors.New("broken")
	if _, err := amortize(1, 1, 1, func(uint32) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("a measurement that fails: %v", err)
	}
}
