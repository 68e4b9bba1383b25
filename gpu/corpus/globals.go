package corpus

import "math/rand/v2"

// globals exercises the module's variables: constants set by the host and by the source, a table
// that one launch fills for the next, a counter.
var globals = Kernel{
	Name: "globals",
	build: func(size Size, rng *rand.Rand) *Case {
		n, seed := choose(size, 1_500, 35_000, 400_000), rng.Uint32()
		coefficients, x := uniform(rng, 8, -1, 1), uniform(rng, n, -2, 2)
		steps := [4]int32{1, 3, -2, 7}
		table := make([]uint32, 64)
		for i := range table {
			v := seed + uint32(i)
			table[i] = v*v + uint32(steps[i%4])
		}
		y, letters, picked := make([]float32, n), make([]uint8, n), make([]uint32, n)
		for i := range n {
			for k := 7; k >= 0; k-- {
				y[i] = fma32(y[i], x[i], coefficients[k])
			}
			picked[i] = table[i*37%64]
			letters[i] = "0123456789abcdef"[picked[i]>>28]
		}
		return &Case{
			Buffers: []Buffer{
				input("x", x), output("y", y), output("letters", letters), output("picked", picked),
				input("coefficients", coefficients).global("coefficients"),
				output("table", table).global("table"),
				update("threads run", []uint64{1000}, []uint64{1000 + 64 + uint64(n)}).global("threads_run"),
			},
			Steps: []Launch{
				launch("globals_fill", 1, 64, u32(seed)),
				launch("globals_use", blocksFor(n, 256), 256, ptr("x"), ptr("y"), ptr("letters"), ptr("picked"), i32(n)),
			},
		}
	},
}
