package corpus

import "math/rand/v2"

// indices exercises special registers in three-dimensional blocks and grids, partial warps, and
// kinds of addresses.
var indices = Kernel{
	Name: "indices",
	build: func(size Size, rng *rand.Rand) *Case {
		const rows = 11
		grid := choose(size, [3]uint32{2, 2, 2}, [3]uint32{7, 5, 4}, [3]uint32{20, 15, 6})
		block := [3]uint32{5 + rng.Uint32N(8), 3 + rng.Uint32N(2), 1 + rng.Uint32N(3)}
		threads := volume(block)
		n := volume(grid) * threads
		out := make([]uint32, rows*n)
		for i := range n {
			lane := i % threads % 32
			self := uint32(1) << lane
			for row, v := range [rows]uint32{
				packed(position(i%threads, block)), packed(position(i/threads, grid)), packed(block), packed(grid),
				lane, self, self | (self - 1), self - 1, -self, -self &^ self,
				0b1011111,
			} {
				out[uint32(row)*n+i] = v
			}
		}
		return &Case{
			Buffers: []Buffer{output("out", out)},
			Steps:   []Launch{{Entry: "indices", Grid: grid, Block: block, Args: []Arg{ptr("out")}}},
		}
	},
}

func volume(v [3]uint32) uint32 { return v[0] * v[1] * v[2] }

// position returns the coordinates of number i in a box, x running fastest.
func position(i uint32, box [3]uint32) [3]uint32 {
	return [3]uint32{i % box[0], i / box[0] % box[1], i / box[0] / box[1]}
}

func packed(v [3]uint32) uint32 { return v[0] | v[1]<<8 | v[2]<<16 }
