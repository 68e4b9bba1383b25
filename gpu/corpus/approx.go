package corpus

import (
	"math"
	"math/rand/v2"
)

// approx exercises the approximate functions of the hardware, and library functions in float32 and
// float64 that use them or tables.
var approx = Kernel{
	Name: "approx",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 300, 8_000, 80_000)
		x := uniform(rng, n, -math.Pi, math.Pi)
		apply := func(f func(v, positive float64) float64) []float32 {
			out := make([]float32, n)
			for i, v := range x {
				out[i] = float32(f(float64(v), float64(float32(math.Abs(float64(v)))+0.5)))
			}
			return out
		}
		wide := func(f func(float64) float64) []float64 {
			out := make([]float64, n)
			for i, v := range x {
				out[i] = f(float64(v))
			}
			return out
		}
		// The bounds are those that PTX states for each instruction, slightly wider if the source
		// adds an operation.
		fast := []struct {
			name   string
			within Tolerance
			f      func(v, positive float64) float64
		}{
			{"sines", Tolerance{Abs: 0x1p-20, Why: "sin.approx.f32"}, func(v, _ float64) float64 { return math.Sin(v) }},
			{"cosines", Tolerance{Abs: 0x1p-20, Why: "cos.approx.f32"}, func(v, _ float64) float64 { return math.Cos(v) }},
			{"exponentials", Tolerance{Rel: 0x1p-20, Why: "ex2.approx.f32 of a rounded product"}, func(v, _ float64) float64 { return math.Exp(v) }},
			{"logarithms", Tolerance{Abs: 0x1p-21, Rel: 0x1p-21, Why: "lg2.approx.f32"}, func(_, p float64) float64 { return math.Log(p) }},
			{"roots", Tolerance{Rel: 0x1p-22, Why: "sqrt.approx.f32"}, func(_, p float64) float64 { return math.Sqrt(p) }},
			{"inverse roots", Tolerance{Rel: 0x1p-22, Why: "rsqrt.approx.f32"}, func(_, p float64) float64 { return 1 / math.Sqrt(p) }},
			{"reciprocals", Tolerance{Rel: 0x1p-22, Why: "rcp.approx.f32"}, func(_, p float64) float64 { return 1 / p }},
			{"quotients", Tolerance{Rel: 0x1p-21, Why: "div.approx.f32"}, func(v, p float64) float64 { return v / p }},
			{"tangents", Tolerance{Rel: 0x1p-10, Why: "tanh.approx.f32"}, func(v, _ float64) float64 { return math.Tanh(v) }},
		}
		c := &Case{Buffers: []Buffer{input("x", x)}}
		args := []Arg{ptr("x")}
		for _, row := range fast {
			c.Buffers = append(c.Buffers, output(row.name, apply(row.f)).within(row.within))
			args = append(args, ptr(row.name))
		}
		c.Buffers = append(c.Buffers,
			output("library sines", apply(func(v, _ float64) float64 { return math.Sin(float64(float32(float32(v) * 40000))) })).
				within(Tolerance{Abs: 0x1p-22, Why: "sinf's reduction and polynomial: 2 units in the last place"}),
			output("powers", apply(func(_, p float64) float64 { return math.Pow(p, float64(float32(1.7))) })).
				within(Tolerance{Rel: 0x1p-20, Why: "powf rests on ex2.approx.ftz.f32"}),
			output("wide exponentials", wide(math.Exp)).within(Tolerance{Rel: 0x1p-51, Why: "exp's polynomial: a unit in the last place"}),
			output("wide roots", wide(math.Cbrt)).within(Tolerance{Rel: 0x1p-51, Why: "cbrt starts from ex2.approx and lg2.approx: a unit in the last place"}),
		)
		c.Steps = []Launch{
			launch("approx_fast", blocksFor(n, 128), 128, append(args, i32(n))...),
			launch("approx_library", blocksFor(n, 128), 128,
				ptr("x"), ptr("library sines"), ptr("powers"), ptr("wide exponentials"), ptr("wide roots"), i32(n)),
		}
		return c
	},
}
