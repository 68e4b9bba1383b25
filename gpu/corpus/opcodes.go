package corpus

import (
	"math/bits"
	"math/rand/v2"
)

// opcodes is an interpreter: a dense switch in a loop, in which lanes diverge, and an indexed
// branch (brx.idx).
var opcodes = Kernel{
	Name: "opcodes",
	build: func(size Size, rng *rand.Rand) *Case {
		const length = 24
		n := choose(size, 48, 1_000, 15_000)
		code := make([]uint8, length)
		for i, op := range below(rng, length, 16) {
			code[i] = uint8(op)
		}
		in, out, jumped := words(rng, n), make([]uint32, n), make([]uint32, n)
		for i, x := range in {
			out[i] = opcodesRun(code, uint32(i), x)
			jumped[i] = [...]uint32{x + 7, x * x, ^x, x >> 1}[x%4]
		}
		return &Case{
			Buffers: []Buffer{input("code", code), input("in", in), output("out", out), output("jumped", jumped)},
			Steps: []Launch{
				launch("opcodes", blocksFor(n, 128), 128, ptr("code"), i32(length), ptr("in"), ptr("out"), i32(n)),
				launch("branch_table", blocksFor(n, 128), 128, ptr("in"), ptr("jumped"), i32(n)),
			},
		}
	},
}

// opcodesRun returns the result of thread i's machine for a.
func opcodesRun(code []uint8, i, a uint32) uint32 {
	length := uint32(len(code))
	b := i * 2654435761
	pc, halted := i%length, false
	for steps := uint32(0); steps < 3*length && !halted; steps++ {
		switch code[pc] {
		case 0:
			a += b
		case 1:
			a -= b ^ 0x55
		case 2:
			a *= b | 1
		case 3:
			b &= a | 0xff00ff
		case 4:
			b |= a >> 3
		case 5:
			a ^= b << 1
		case 6:
			a <<= b & 7
		case 7:
			b >>= a & 3
		case 8:
			a = bits.RotateLeft32(a, 11)
		case 9:
			b = ^b
		case 10:
			a, b = b, a
		case 11:
			a = min(a, b) + 3
		case 12:
			b = max(a, b) - 5
		case 13:
			pc += a & 3
		case 14:
			a += uint32(bits.OnesCount32(b)) * 0x01010101
		case 15:
			halted = a&31 == 0
		}
		pc++
		if pc >= length {
			pc -= length
		}
	}
	return a ^ b
}
