package corpus

import (
	"math"
	"math/rand/v2"
)

// fftLength is the length of the transformed rows.
const fftLength = 512

// fft computes Fourier transforms of 512 points, there and back: Stockham's algorithm in shared
// memory, with the twiddle factors in constant memory.
var fft = Kernel{
	Name: "fft",
	build: func(size Size, rng *rand.Rand) *Case {
		rows := choose(size, 1, 16, 256)
		data := uniform(rng, 2*fftLength*rows, -1, 1)
		twiddles := fftTwiddles()
		forward := make([]float32, len(data))
		back := make([]float32, len(data))
		for r := range rows {
			row := data[2*fftLength*r:][:2*fftLength]
			once := fftRow(row, twiddles, false)
			copy(forward[2*fftLength*r:], once)
			copy(back[2*fftLength*r:], fftRow(once, twiddles, true))
		}
		return &Case{
			Buffers: []Buffer{
				update("forward", data, forward), update("inverse", forward, back),
				input("twiddles", twiddles).global("twiddles"),
			},
			Steps: []Launch{
				launch("fft512", rows, fftLength/2, ptr("forward"), i32(0)),
				launch("fft512", rows, fftLength/2, ptr("inverse"), i32(1)),
			},
		}
	},
}

// fftTwiddles returns exp(−2πi·k/512) for the first half of the circle, as pairs.
func fftTwiddles() []float32 {
	v := make([]float32, 0, fftLength)
	for k := range fftLength / 2 {
		sin, cos := math.Sincos(-2 * math.Pi * float64(k) / fftLength)
		v = append(v, float32(cos), float32(sin))
	}
	return v
}

// fftRow transforms one row of complex numbers, given as pairs, with the kernel's operations in the
// kernel's order.
func fftRow(row, twiddles []float32, inverse bool) []float32 {
	from, to := append([]float32(nil), row...), make([]float32, len(row))
	for span := 1; span < fftLength; span *= 2 {
		for t := range fftLength / 2 {
			k := t & (span - 1)
			at := 2 * (k * (fftLength / 2 / span))
			wx, wy := twiddles[at], twiddles[at+1]
			if inverse {
				wy = -wy
			}
			ax, ay := from[2*t], from[2*t+1]
			bx, by := from[2*t+fftLength], from[2*t+fftLength+1]
			cx := float32(bx*wx) - float32(by*wy)
			cy := float32(bx*wy) + float32(by*wx)
			i := 2 * (2*t - k)
			to[i], to[i+1] = ax+cx, ay+cy
			to[i+2*span], to[i+2*span+1] = ax-cx, ay-cy
		}
		from, to = to, from
	}
	return from
}
