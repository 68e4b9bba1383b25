package corpus

import "math/rand/v2"

// euler computes the Euler equations by finite volumes on an unstructured mesh: long arithmetic,
// many registers, gathers.
var euler = Kernel{
	Name: "euler",
	build: func(size Size, rng *rand.Rand) *Case {
		const faces, farField, wing = 4, -1, -2
		const iterations = 2
		n := choose(size, 70, 1_500, 18_000)
		m := eulerMesh{n: n, neighbours: make([]int32, faces*n), normals: uniform(rng, 3*faces*n, -0.1, 0.1)}
		for i := range m.neighbours {
			switch rng.IntN(20) {
			case 0:
				m.neighbours[i] = farField
			case 1:
				m.neighbours[i] = wing
			default:
				m.neighbours[i] = rng.Int32N(int32(n))
			}
		}
		m.areas = uniform(rng, n, 0.5, 2)
		m.farField = [5]float32{1, 0.3, 0.02, 0, 2.2}
		start := make([]float32, 5*n)
		for v, mean := range m.farField {
			for i, jitter := range uniform(rng, n, -0.05, 0.05) {
				start[v*n+i] = mean + jitter
			}
		}
		variables := append([]float32(nil), start...)
		var steps, fluxes []float32
		c := &Case{}
		blocks := blocksFor(n, 96)
		for range iterations {
			steps, fluxes = m.steps(variables), m.fluxes(variables)
			for i := range variables {
				variables[i] -= float32(steps[i%n] * fluxes[i])
			}
			c.Steps = append(c.Steps,
				launch("euler_step", blocks, 96, ptr("variables"), ptr("areas"), ptr("steps"), i32(n)),
				launch("euler_flux", blocks, 96, ptr("variables"), ptr("neighbours"), ptr("normals"), ptr("fluxes"), i32(n)),
				launch("euler_update", blocks, 96, ptr("variables"), ptr("fluxes"), ptr("steps"), i32(n)))
		}
		c.Buffers = []Buffer{
			update("variables", start, variables), input("areas", m.areas),
			input("neighbours", m.neighbours), input("normals", m.normals),
			output("steps", steps), output("fluxes", fluxes),
			input("far field", m.farField[:]).global("far_field"),
		}
		return c
	},
}

// eulerMesh is the part of the problem that is constant over time, in the layout of the kernels'
// arrays.
type eulerMesh struct {
	n          int
	areas      []float32
	neighbours []int32
	normals    []float32
	farField   [5]float32
}

// eulerState is what the kernels derive from a cell's conserved variables.
type eulerState struct {
	density, energy, pressure float32
	momentum, velocity        [3]float32
}

// eulerGamma is a variable because arithmetic on constants would not round to float32 like the
// kernels'.
var eulerGamma float32 = 1.4

func newEulerState(v [5]float32) eulerState {
	s := eulerState{density: v[0], momentum: [3]float32(v[1:4]), energy: v[4]}
	for axis := range s.velocity {
		s.velocity[axis] = s.momentum[axis] / s.density
	}
	kinetic := float32(float32(0.5*s.density) * s.speed2())
	s.pressure = float32((eulerGamma - 1) * (s.energy - kinetic))
	return s
}

func (s *eulerState) speed2() float32 { return norm2(s.velocity) }

func (s *eulerState) speed() float32 { return sqrt32(s.speed2()) }

func (s *eulerState) sound() float32 { return sqrt32(float32(eulerGamma*s.pressure) / s.density) }

func norm2(v [3]float32) float32 {
	return float32(v[0]*v[0]) + float32(v[1]*v[1]) + float32(v[2]*v[2])
}

func (m *eulerMesh) state(variables []float32, i int) eulerState {
	var v [5]float32
	for k := range v {
		v[k] = variables[k*m.n+i]
	}
	return newEulerState(v)
}

func (m *eulerMesh) steps(variables []float32) []float32 {
	out := make([]float32, m.n)
	for i := range out {
		s := m.state(variables, i)
		out[i] = 0.5 / float32(sqrt32(m.areas[i])*(s.speed()+s.sound()))
	}
	return out
}

// carry adds to flux half of what s carries through a face.
func (s *eulerState) carry(flux *[5]float32, normal [3]float32) {
	along := float32(s.velocity[0]*normal[0]) + float32(s.velocity[1]*normal[1]) + float32(s.velocity[2]*normal[2])
	through := float32(0.5 * along)
	flux[0] += float32(through * s.density)
	for axis := range normal {
		push := float32(float32(0.5*s.pressure) * normal[axis])
		flux[1+axis] += float32(through*s.momentum[axis]) + push
	}
	flux[4] += float32(through * (s.energy + s.pressure))
}

func (m *eulerMesh) fluxes(variables []float32) []float32 {
	out := make([]float32, len(variables))
	for i := range m.n {
		here := m.state(variables, i)
		var flux [5]float32
		for f := range 4 {
			neighbour := int(m.neighbours[f*m.n+i])
			var normal [3]float32
			for axis := range normal {
				normal[axis] = m.normals[(3*f+axis)*m.n+i]
			}
			var there eulerState
			switch neighbour {
			case -2: // the wing
				for axis := range normal {
					flux[1+axis] += float32(here.pressure * normal[axis])
				}
				continue
			case -1:
				there = newEulerState(m.farField)
			default:
				there = m.state(variables, neighbour)
			}
			here.carry(&flux, normal)
			there.carry(&flux, normal)
			if neighbour < 0 {
				continue
			}
			area := float32(0.1 * sqrt32(norm2(normal)))
			factor := float32(area * (here.speed() + there.speed() + here.sound() + there.sound()))
			flux[0] += float32(factor * (here.density - there.density))
			for axis := range normal {
				flux[1+axis] += float32(factor * (here.momentum[axis] - there.momentum[axis]))
			}
			flux[4] += float32(factor * (here.energy - there.energy))
		}
		for v := range flux {
			out[v*m.n+i] = flux[v]
		}
	}
	return out
}
