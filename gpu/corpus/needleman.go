package corpus

import "math/rand/v2"

// needleman computes a global sequence alignment (Needleman-Wunsch): a wavefront of tiles over
// launches and of cells over barriers.
var needleman = Kernel{
	Name: "needleman",
	build: func(size Size, rng *rand.Rand) *Case {
		const tile, residues, gap = 16, 24, 10
		n := choose(size, 64, 192, 800)
		a, b := make([]uint8, n), make([]uint8, n)
		for i := range n {
			a[i], b[i] = uint8(rng.UintN(residues)), uint8(rng.UintN(residues))
		}
		similarity := make([]int32, residues*residues)
		for i := range residues {
			for j := range i + 1 {
				s := int32(rng.IntN(9)) - 4
				if i == j {
					s = 4 + int32(rng.IntN(8))
				}
				similarity[i*residues+j], similarity[j*residues+i] = s, s
			}
		}
		pitch := n + 1
		start := make([]int32, pitch*pitch)
		for i := range pitch {
			start[i], start[i*pitch] = int32(-gap*i), int32(-gap*i)
		}
		scores := append([]int32(nil), start...)
		for y := range n {
			for x := range n {
				s := scores[y*pitch+x:]
				diagonal, up, left := s[0], s[1], s[pitch]
				s[pitch+1] = max(diagonal+similarity[int(a[y])*residues+int(b[x])], max(up, left)-gap)
			}
		}
		c := &Case{Buffers: []Buffer{
			input("a", a), input("b", b), update("scores", start, scores),
			input("similarity", similarity).global("similarity"),
		}}
		tiles := n / tile
		for diagonal := range 2*tiles - 1 {
			first := max(0, diagonal-tiles+1)
			last := min(diagonal, tiles-1)
			c.Steps = append(c.Steps, launch("needleman", last-first+1, tile,
				ptr("a"), ptr("b"), ptr("scores"), i32(n), i32(diagonal), i32(first), i32(gap)))
		}
		return c
	},
}
