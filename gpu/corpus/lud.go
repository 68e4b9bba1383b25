package corpus

import "math/rand/v2"

const ludTile = 16

// lud decomposes a matrix into a lower and an upper triangle in tiles: launches of one block, of a
// row and of a square of blocks by turns.
var lud = Kernel{
	Name: "lud",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 48, 128, 256)
		a := uniform(rng, n*n, -1, 1)
		for i := range n {
			a[i*n+i] += float32(n) // no pivoting
		}
		c := &Case{Buffers: []Buffer{update("a", a, ludReference(a, n))}}
		for from := 0; from < n; from += ludTile {
			args := []Arg{ptr("a"), i32(n), i32(from)}
			c.Steps = append(c.Steps, launch("lud_diagonal", 1, ludTile, args...))
			if rest := (n-from)/ludTile - 1; rest > 0 {
				c.Steps = append(c.Steps, launch("lud_perimeter", rest, 2*ludTile, args...),
					launch2("lud_internal", rest, rest, ludTile, ludTile, args...))
			}
		}
		return c
	},
}

// ludReference decomposes a copy of a as the launches do: within a diagonal tile and beside it one
// product at a time, and from the rest a tile's products in one sum.
func ludReference(a []float32, n int) []float32 {
	a = append([]float32(nil), a...)
	for from := 0; from < n; from += ludTile {
		end := from + ludTile
		for k := from; k < end; k++ {
			for row := k + 1; row < n; row++ {
				a[row*n+k] /= a[k*n+k]
				last := n
				if row >= end {
					last = end
				}
				for column := k + 1; column < last; column++ {
					a[row*n+column] = fma32(-a[row*n+k], a[k*n+column], a[row*n+column])
				}
			}
		}
		for row := end; row < n; row++ {
			for column := end; column < n; column++ {
				sum := float32(0)
				for k := from; k < end; k++ {
					sum = fma32(a[row*n+k], a[k*n+column], sum)
				}
				a[row*n+column] -= sum
			}
		}
	}
	return a
}
