package corpus

import (
	"math/bits"
	"math/rand/v2"
)

// calls exercises calls of device functions: direct, recursive, and through a table of pointers
// that differ within a warp.
var calls = Kernel{
	Name: "calls",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 80, 2_000, 30_000)
		in, steps, greatest := make([]uint32, n), make([]int32, n), make([]uint32, n)
		for i := range in {
			in[i] = 1 + rng.Uint32N(9_999) // below 10⁴ the path stays below 2³²
			steps[i], greatest[i] = collatz(in[i])
		}
		which, a, b, out := words(rng, n), words(rng, n), words(rng, n), make([]uint32, n)
		for i := range out {
			switch which[i] & 3 {
			case 0:
				out[i] = a[i] + b[i]
			case 1:
				out[i] = a[i] * b[i]
			case 2:
				out[i] = a[i] ^ b[i]
			case 3:
				out[i] = bits.RotateLeft32(a[i], int(b[i]&31))
			}
		}
		few := choose(size, 40, 300, 3_000)
		m, k, values := make([]int32, few), make([]int32, few), make([]int32, few)
		for i := range values {
			m[i], k[i] = rng.Int32N(3), rng.Int32N(5)
			values[i] = ackermann(m[i], k[i])
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), output("steps", steps), output("greatest", greatest),
				input("which", which), input("a", a), input("b", b), output("out", out),
				input("m", m), input("k", k), output("ackermann", values),
			},
			Steps: []Launch{
				launch("call_direct", blocksFor(n, 64), 64, ptr("in"), ptr("steps"), ptr("greatest"), i32(n)),
				launch("call_indirect", blocksFor(n, 64), 64, ptr("which"), ptr("a"), ptr("b"), ptr("out"), i32(n)),
				launch("call_recursive", blocksFor(few, 64), 64, ptr("m"), ptr("k"), ptr("ackermann"), i32(few)),
			},
		}
	},
}

func collatz(x uint32) (steps int32, greatest uint32) {
	greatest = x
	for ; x != 1; steps++ {
		if x%2 == 0 {
			x /= 2
		} else {
			x = 3*x + 1
		}
		greatest = max(greatest, x)
	}
	return steps, greatest
}

func ackermann(m, n int32) int32 {
	switch {
	case m == 0:
		return n + 1
	case n == 0:
		return ackermann(m-1, 1)
	}
	return ackermann(m-1, ackermann(m, n-1))
}
