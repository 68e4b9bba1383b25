package accounting

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlannerMean(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name        string
		config      Config
		load        Load
		poll, quiet time.Duration
	}{
		{name: "nobody", poll: 1 * ms, quiet: 5 * ms},
		{name: "one", load: Load{Active: 1}, poll: 1 * ms, quiet: 5 * ms},
		{name: "for each active guest", load: Load{Active: 3, Allocated: 36}, poll: 3 * ms, quiet: 15 * ms},
		{name: "up to a round", load: Load{Active: 4}, poll: 4 * ms, quiet: 20 * ms},
		{name: "and no further, in the same ratio", load: Load{Active: 16}, poll: 4 * ms, quiet: 20 * ms},
		{name: "by allocated channels, as LoGA", config: Config{Scale: ByAllocated, Round: -1}, load: Load{Active: 1, Allocated: 12}, poll: 12 * ms, quiet: 60 * ms},
		{name: "all the time", config: Config{Full: true}, load: Load{Active: 2}, poll: 12 * ms},
		{name: "a round shorter than one guest's", config: Config{Round: 3 * ms}, load: Load{Active: 1}, poll: ms / 2, quiet: 5 * ms / 2},
		{name: "no number of guests overflows", load: Load{Active: math.MaxInt}, poll: 4 * ms, quiet: 20 * ms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			poll, quiet := NewPlanner(test.config).Mean(test.load)
			if poll != test.poll || quiet != test.quiet {
				t.Errorf("mean %v and %v, want %v and %v", poll, quiet, test.poll, test.quiet)
			}
		})
	}
}

// Lengths keep their mean, stay within the jitter, and follow from the seed.
func TestPlannerJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{
			Jitter: rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
			Seed:   rapid.Uint64().Draw(t, "seed"),
			Full:   rapid.Bool().Draw(t, "full"),
		}
		load := Load{Active: rapid.IntRange(0, 20).Draw(t, "active")}
		a, b := NewPlanner(config), NewPlanner(config)
		poll, quiet := a.Mean(load)
		round := poll + quiet
		var polls, rounds time.Duration
		const n = 500
		for range n {
			p, q := a.Next(load)
			if p2, q2 := b.Next(load); p != p2 || q != q2 {
				t.Fatal("the same seed gave other lengths")
			}
			if off := (p + q - round).Abs(); float64(off) > config.Jitter*(1+noise)*float64(round) {
				t.Fatalf("round of %v, mean %v, jitter %v", p+q, round, config.Jitter)
			}
			if p <= 0 || quiet > 0 && q < quiet/minQuiet {
				t.Fatalf("polling phase of %v and quiet phase of %v", p, q)
			}
			polls, rounds = polls+p, rounds+p+q
		}
		// Polling phases move about in their rounds, which stay where they are.
		if off := (rounds - n*round).Abs(); off > 2*round {
			t.Errorf("%d rounds took %v, want %v give or take two", n, rounds, n*round)
		}
		if off := math.Abs(float64(polls)/n/float64(poll) - 1); quiet > 0 && off > 6*noise/math.Sqrt(12*n) {
			t.Errorf("mean polling phase off by %.2f %%", 100*off)
		}
	})
}
