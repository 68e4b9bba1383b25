package corpus

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
)

// lennardjones is a molecular dynamics simulation: neighbour lists from cells, then Lennard-Jones
// forces. It has a struct as a parameter, gathers, and loops of different lengths.
var lennardjones = Kernel{
	Name: "lennardjones",
	build: func(size Size, rng *rand.Rand) *Case {
		const cutoff, most = float32(1.6), 48
		n := choose(size, 64, 512, 6_000)
		side := choose(size, 3, 5, 10)
		box := boxOfAtoms(rng, n, side, cutoff)
		lists, lengths := box.neighbours(cutoff*cutoff, most)
		forces := box.forces(lists, lengths)
		cells := binary.LittleEndian.AppendUint32(nil, uint32(side))
		cells = binary.LittleEndian.AppendUint32(cells, math.Float32bits(cutoff))
		return &Case{
			Buffers: []Buffer{
				input("atoms", box.atoms), input("starts", box.starts),
				// The rows of a column beyond the number of an atom's neighbours are never written.
				update("lists", make([]int32, most*n), lists), output("lengths", lengths),
				output("forces", forces),
			},
			Steps: []Launch{
				launch("lj_neighbours", blocksFor(n, 64), 64, ptr("atoms"), ptr("starts"), ptr("lists"), ptr("lengths"),
					Arg{Bytes: cells}, f32(cutoff*cutoff), i32(most), i32(n)),
				launch("lj_forces", blocksFor(n, 64), 64, ptr("atoms"), ptr("lists"), ptr("lengths"), ptr("forces"), i32(n)),
			},
		}
	},
}

// atomBox holds atoms in a cube of cells, sorted by cell.
type atomBox struct {
	atoms    []float32 // x, y, z and an unused word for each
	starts   []int32   // index of each cell's first atom; one more than there are cells
	side     int       // cells along an edge
	cellSize float32
}

// boxOfAtoms puts n atoms on a jittered lattice, so that no two are so close that forces explode.
func boxOfAtoms(rng *rand.Rand, n, side int, cellSize float32) atomBox {
	edge := int(math.Ceil(math.Cbrt(float64(n))))
	spacing := float32(side) * cellSize / float32(edge)
	type atom struct {
		cell int
		at   [3]float32
	}
	all := make([]atom, n)
	for i := range all {
		for axis, k := range [3]int{i % edge, i / edge % edge, i / edge / edge} {
			jitter := float32(0.6*rng.Float32()) - 0.3
			all[i].at[axis] = float32((float32(k) + 0.5 + jitter) * spacing)
		}
		cell := func(axis int) int { return int(all[i].at[axis] / cellSize) }
		all[i].cell = (cell(2)*side+cell(1))*side + cell(0)
	}
	slices.SortStableFunc(all, func(a, b atom) int { return a.cell - b.cell })
	box := atomBox{starts: make([]int32, side*side*side+1), side: side, cellSize: cellSize}
	for _, a := range all {
		box.atoms = append(box.atoms, a.at[0], a.at[1], a.at[2], 0)
		box.starts[a.cell+1]++
	}
	for c := range side * side * side {
		box.starts[c+1] += box.starts[c]
	}
	return box
}

// separation returns the vector from atom j to atom i and its squared length.
func (b *atomBox) separation(i, j int32) (d [3]float32, r2 float32) {
	p, q := b.atoms[4*i:], b.atoms[4*j:]
	d = [3]float32{p[0] - q[0], p[1] - q[1], p[2] - q[2]}
	return d, float32(d[0]*d[0]) + float32(d[1]*d[1]) + float32(d[2]*d[2])
}

func (b *atomBox) neighbours(cutoff2 float32, most int) (lists, lengths []int32) {
	n := len(b.atoms) / 4
	lists, lengths = make([]int32, most*n), make([]int32, n)
	for i := range int32(n) {
		var low, high [3]int
		for axis := range low {
			c := int(b.atoms[4*int(i)+axis] / b.cellSize)
			low[axis], high[axis] = max(c-1, 0), min(c+1, b.side-1)
		}
		for z := low[2]; z <= high[2]; z++ {
			for y := low[1]; y <= high[1]; y++ {
				for x := low[0]; x <= high[0]; x++ {
					cell := (z*b.side+y)*b.side + x
					for j := b.starts[cell]; j < b.starts[cell+1]; j++ {
						if _, r2 := b.separation(i, j); j != i && r2 < cutoff2 && lengths[i] < int32(most) {
							lists[int(lengths[i])*n+int(i)] = j
							lengths[i]++
						}
					}
				}
			}
		}
	}
	return lists, lengths
}

func (b *atomBox) forces(lists, lengths []int32) []float32 {
	n := len(lengths)
	forces := make([]float32, 4*n)
	for i := range n {
		f := forces[4*i : 4*i+4]
		for k := range int(lengths[i]) {
			d, r2 := b.separation(int32(i), lists[k*n+i])
			inverse2 := 1 / r2
			inverse6 := float32(float32(inverse2*inverse2) * inverse2)
			force := float32(float32(24*inverse6)*(float32(2*inverse6)-1)) * inverse2
			for axis := range d {
				f[axis] = fma32(force, d[axis], f[axis])
			}
			f[3] += float32(float32(4*inverse6) * (inverse6 - 1))
		}
	}
	return forces
}
