package corpus

import "math/rand/v2"

// pathfinder computes the cheapest path down a grid by dynamic programming: several rows per
// launch, overlapping tiles.
var pathfinder = Kernel{
	Name: "pathfinder",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads, rowsPerLaunch = 256, 16
		columns, rows := choose(size, 300, 2_000, 12_000), choose(size, 10, 40, 110)
		costs := make([]int32, columns*rows)
		for i := range costs {
			costs[i] = rng.Int32N(10)
		}
		now, next := append([]int32(nil), costs[:columns]...), make([]int32, columns)
		before := next
		c := &Case{}
		from, to := "a", "b"
		for row := 1; row < rows; row += rowsPerLaunch {
			steps := min(rowsPerLaunch, rows-row)
			before = append([]int32(nil), now...)
			for k := range steps {
				for x := range columns {
					best := min(now[max(x-1, 0)], now[x], now[min(x+1, columns-1)])
					next[x] = best + costs[(row+k)*columns+x]
				}
				now, next = next, now
			}
			c.Steps = append(c.Steps, launch("pathfinder", blocksFor(columns, threads-2*steps), threads,
				ptr("costs"), ptr(from), ptr(to), i32(columns), i32(row), i32(steps)))
			from, to = to, from
		}
		// The last launch wrote to from; to holds its input.
		c.Buffers = []Buffer{input("costs", costs)}
		first := costs[:columns]
		if from == "b" {
			if len(c.Steps) == 1 {
				c.Buffers = append(c.Buffers, input("a", first), output("b", now))
			} else {
				c.Buffers = append(c.Buffers, update("a", first, before), output("b", now))
			}
		} else {
			c.Buffers = append(c.Buffers, update("a", first, now), output("b", before))
		}
		return c
	},
}
