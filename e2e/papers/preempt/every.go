package main

import (
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// adaptiveEvery implements EffiSha's adaptive checking (§6.3). It returns after how many iterations
// of its loop a block checks whether it must leave. slice is the length of the scheduling slice.
// iteration is the length of one iteration, which the paper samples as the first iteration of each
// block, averaged over the blocks. checks is how many checks a slice should have, to make up for
// errors in that estimate.
//
// The paper prints k = r·L/l with r = 10 checks a slice. That formula gives one check in ten
// slices, and more iterations the more checks are asked for. The text describes k = max(1,
// L/(r·l)), which is computed here.
func adaptiveEvery(slice, iteration time.Duration, checks int) uint32 {
	if slice <= 0 || iteration <= 0 || checks <= 0 {
		return 1
	}
	k := slice / (time.Duration(checks) * iteration)
	return uint32(min(max(k, 1), abi.MaxPreemptEvery))
}

// amortize searches for FLEP's amortizing factor L off line (§4.1: "trying different values from
// small to large"). It returns the smallest power of two up to most with which a kernel costs at
// most the ratio bound more than original, or 0 if even most exceeds the bound. cost measures the
// kernel with a given L, in the unit of original.
func amortize(original, bound float64, most uint32, cost func(every uint32) (float64, error)) (uint32, error) {
	for every := uint32(1); every <= min(most, abi.MaxPreemptEvery); every *= 2 {
		c, err := cost(every)
		if err != nil {
			return 0, fmt.Errorf("measure with a check every %d tasks: %w", every, err)
		}
		if c <= original*(1+bound) {
			return every, nil
		}
	}
	return 0, nil
}
