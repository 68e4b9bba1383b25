package corpus

import "math/rand/v2"

// spmv computes a sparse matrix (compressed rows) times a vector: with a thread per row, then with
// a warp per row and shuffles.
var spmv = Kernel{
	Name: "spmv",
	build: func(size Size, rng *rand.Rand) *Case {
		rows := choose(size, 60, 2_000, 20_000)
		offsets := make([]int32, rows+1)
		for r := range rows {
			// Rows are mostly short, with a few long ones.
			length := rng.IntN(16)
			if rng.IntN(40) == 0 {
				length = 40 + rng.IntN(100)
			}
			offsets[r+1] = offsets[r] + int32(length)
		}
		entries := int(offsets[rows])
		columns, values, x := make([]int32, entries), uniform(rng, entries, -1, 1), uniform(rng, rows, -1, 1)
		for k := range columns {
			columns[k] = rng.Int32N(int32(rows))
		}
		scalar, vector := make([]float32, rows), make([]float32, rows)
		for r := range rows {
			var lanes [32]float32
			for k := offsets[r]; k < offsets[r+1]; k++ {
				scalar[r] = fma32(values[k], x[columns[k]], scalar[r])
				lane := &lanes[(k-offsets[r])%32]
				*lane = fma32(values[k], x[columns[k]], *lane)
			}
			for distance := 16; distance > 0; distance /= 2 {
				for lane := range distance {
					lanes[lane] += lanes[lane+distance]
				}
			}
			vector[r] = lanes[0]
		}
		args := func(y string) []Arg {
			return []Arg{ptr("offsets"), ptr("columns"), ptr("values"), ptr("x"), ptr(y), i32(rows)}
		}
		return &Case{
			Buffers: []Buffer{
				input("offsets", offsets), input("columns", columns), input("values", values), input("x", x),
				output("y by threads", scalar), output("y by warps", vector),
			},
			Steps: []Launch{
				launch("spmv_scalar", blocksFor(rows, 128), 128, args("y by threads")...),
				launch("spmv_vector", blocksFor(rows, 4), 128, args("y by warps")...),
			},
		}
	},
}
