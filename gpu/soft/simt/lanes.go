package simt

import "math/bits"

func popcount(m uint32) int { return bits.OnesCount32(m) }

// first returns the lowest lane of a non-empty mask.
func first(m uint32) int { return bits.TrailingZeros32(m) & 31 }

// bit returns 1 for true and 0 for false.
func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// spread sets each lane of mask in d to yes or no, according to the lane's bit in set.
func spread[T value](d *[lanes]T, mask, set uint32, yes, no T) {
	for m := mask; m != 0; m &= m - 1 {
		i := first(m)
		if set>>i&1 != 0 {
			d[i] = yes
		} else {
			d[i] = no
		}
	}
}

// fill gives every lane of mask the same value.
func fill[T value](d *[lanes]T, mask uint32, v T) {
	if mask == full {
		for i := range d {
			d[i] = v
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		d[first(m)] = v
	}
}
