package corpus

import (
	"math/rand/v2"
	"slices"
)

// localarray exercises a thread's own arrays with computed indices, in local memory: a median
// filter and a stack machine.
var localarray = Kernel{
	Name: "localarray",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 100, 3_000, 35_000)
		in, medians := make([]int32, n), make([]int32, n)
		for i := range in {
			in[i] = rng.Int32N(2000) - 1000
		}
		for i := range medians {
			var window [9]int32
			for k := range window {
				window[k] = in[min(max(i+k-4, 0), n-1)]
			}
			slices.Sort(window[:])
			medians[i] = window[4]
		}
		const length = 31
		programs, results := make([]uint16, 0, n*length), make([]uint32, n)
		for i := range results {
			program := postfixProgram(rng, length)
			programs = append(programs, program...)
			results[i] = postfixRun(program)
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), output("medians", medians),
				input("programs", programs), output("results", results),
			},
			Steps: []Launch{
				launch("median9", blocksFor(n, 128), 128, ptr("in"), ptr("medians"), i32(n)),
				launch("postfix", blocksFor(n, 128), 128, ptr("programs"), i32(length), ptr("results"), i32(n)),
			},
		}
	},
}

// postfixProgram returns a program of odd length that leaves one number: numbers are positive,
// operators are −1 (add), −2 (subtract), −3 (multiply).
func postfixProgram(rng *rand.Rand, length int) []uint16 {
	program := make([]uint16, length)
	depth := 0
	for i := range program {
		left := length - i
		if mustReduce := depth-1 == left; depth >= 2 && (mustReduce || rng.IntN(2) == 0) {
			program[i] = uint16(-1 - rng.IntN(3))
			depth--
		} else {
			program[i] = uint16(rng.IntN(1000))
			depth++
		}
	}
	return program
}

func postfixRun(program []uint16) uint32 {
	var stack []uint32
	for _, token := range program {
		if int16(token) >= 0 {
			stack = append(stack, uint32(token))
			continue
		}
		a, b := stack[len(stack)-2], stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		top := &stack[len(stack)-1]
		switch int16(token) {
		case -1:
			*top = a + b
		case -2:
			*top = a - b
		case -3:
			*top = a * b
		}
	}
	return stack[0]
}
