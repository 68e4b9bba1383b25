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
		{name: "nobody: hardly looking", poll: ms / 5, quiet: 200 * ms},
		{name: "nobody, by allocated channels", config: Config{Scale: ByAllocated}, load: Load{Active: 1}, poll: ms / 5, quiet: 200 * ms},
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

// TestPlannerInterval tests that a GPU is looked at once in each interval.
func TestPlannerInterval(t *testing.T) {
	const us = time.Microsecond
	for _, test := range []struct {
		name   string
		config Config
		active int
		want   time.Duration
	}{
		{name: "nobody", want: 20020 * us},
		{name: "one guest", active: 1, want: 600 * us},
		{name: "many guests", active: 16, want: 600 * us},
		{name: "larger pieces", config: Config{Piece: 900 * us}, active: 2, want: 6000 * us},
		{name: "in one, as LoGA", config: Config{Piece: -1}, active: 3, want: 18000 * us},
		{name: "all the time", config: Config{Full: true}, active: 3},
	} {
		if got := NewPlanner(test.config).Interval(Load{Active: test.active}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestPlannerPieces(t *testing.T) {
	const us = time.Microsecond
	tests := []struct {
		name        string
		config      Config
		active      int
		pieces      int
		pause, poll time.Duration
	}{
		{name: "one guest", active: 1, pieces: 10, pause: 500 * us, poll: 100 * us},
		{name: "many guests", active: 16, pieces: 40, pause: 500 * us, poll: 100 * us},
		{name: "larger pieces", config: Config{Piece: 900 * us}, active: 2, pieces: 2, pause: 5000 * us, poll: 1000 * us},
		{name: "a piece longer than the phase", config: Config{Piece: time.Second}, active: 1, pieces: 1, pause: 5000 * us, poll: 1000 * us},
		{name: "in one, as LoGA", config: Config{Piece: -1}, active: 3, pieces: 1, pause: 15000 * us, poll: 3000 * us},
		{name: "all the time", config: Config{Full: true}, active: 1, pieces: 1, poll: 6000 * us},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.config.Jitter = -1
			p := NewPlanner(test.config)
			for range 3 * test.pieces {
				for i := range test.pieces {
					want := Piece{Pause: test.pause, Poll: test.poll, Last: i == test.pieces-1}
					if got := p.Next(Load{Active: test.active}); got != want {
						t.Fatalf("piece %d: %+v, want %+v", i, got, want)
					}
				}
			}
		})
	}
}

// TestPlannerJitter tests that lengths keep their mean, stay within the jitter, and depend only on
// the seed.
func TestPlannerJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{
			Jitter: rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
			Seed:   rapid.Uint64().Draw(t, "seed"),
			Full:   rapid.Bool().Draw(t, "full"),
			Piece:  rapid.SampledFrom([]time.Duration{-1, 50 * time.Microsecond, 0, time.Millisecond}).Draw(t, "piece"),
		}
		load := Load{Active: rapid.IntRange(0, 20).Draw(t, "active")}
		a, b := NewPlanner(config), NewPlanner(config)
		still := config
		still.Jitter = -1
		mean := NewPlanner(still).Next(load)
		whole := mean.Poll + mean.Pause
		var polls, all time.Duration
		const n = 500
		for range n {
			piece := a.Next(load)
			if piece != b.Next(load) {
				t.Fatal("the same seed gave other lengths")
			}
			length := piece.Poll + piece.Pause
			if off := (length - whole).Abs(); float64(off) > config.Jitter*(1+noise)*float64(whole) {
				t.Fatalf("part of %v, mean %v, jitter %v", length, whole, config.Jitter)
			}
			if piece.Poll <= 0 || mean.Pause > 0 && piece.Pause < mean.Pause/minPause {
				t.Fatalf("poll for %v after a pause of %v", piece.Poll, piece.Pause)
			}
			polls, all = polls+piece.Poll, all+length
		}
		// Pieces move within their parts of the rounds, and the parts stay in place.
		if off := (all - n*whole).Abs(); off > 2*whole {
			t.Errorf("%d parts took %v, want %v give or take two", n, all, n*whole)
		}
		if off := math.Abs(float64(polls)/n/float64(mean.Poll) - 1); mean.Pause > 0 && off > 6*noise/math.Sqrt(12*n) {
			t.Errorf("mean polling off by %.2f %%", 100*off)
		}
	})
}

// TestPlannerPlaces tests that the positions of pieces in their parts of the round are uniformly
// distributed and not correlated.
func TestPlannerPlaces(t *testing.T) {
	const n, bins = 1000, 10
	// With half the jitter no pause is too short to be drawn.
	p := NewPlanner(Config{Jitter: 0.5, Seed: 7})
	whole := 600 * time.Microsecond
	var counts [bins]int
	var place, least, most float64
	for i := range n {
		piece := p.Next(Load{Active: 1})
		step := float64(piece.Pause+piece.Poll-whole) / (0.5 * float64(whole))
		place += step
		counts[int(bins*(place-math.Floor(place)))%bins]++
		// The difference between a step and that of the recurrence, from -1/2 to 1/2.
		rest := math.Remainder(step-plastic, 1)
		if i == 0 {
			least, most = rest, rest
		}
		least, most = min(least, rest), max(most, rest)
	}
	for i, c := range counts {
		if c < n/bins*9/10 || c > n/bins*11/10 {
			t.Errorf("%d of %d pieces are in part %d of %d", c, n, i, bins)
		}
	}
	if spread := most - least; spread < noise || spread > 2*noise+0.001 {
		t.Errorf("steps vary by %.3f, want %.2f to %.2f", spread, noise, 2*noise)
	}
}

// TestPlannerRestart tests that an aborted round is followed by a whole one.
func TestPlannerRestart(t *testing.T) {
	p := NewPlanner(Config{})
	pieces := func(active int) (n int) {
		for n = 1; !p.Next(Load{Active: active}).Last; n++ {
		}
		return n
	}
	for range 3 {
		p.Next(Load{Active: 1})
	}
	p.Restart()
	if n := pieces(2); n != 20 {
		t.Errorf("a round for two guests after one that was broken off has %d pieces, want 20", n)
	}
}

// TestPlannerRoundsBeginAnywhere tests that, at each distance from a round's beginning, the GPU is
// polled for as much of the time as over all, whatever the round before was like, and that rounds
// keep their mean length. Verdicts come where a round ends, so that the load is in step with that.
func TestPlannerRoundsBeginAnywhere(t *testing.T) {
	const (
		rounds = 40000
		bin    = 100 * time.Microsecond
	)
	load := Load{Active: 2}
	p := NewPlanner(Config{Seed: 4})
	var after [2][100]time.Duration // polled, after a shorter and a longer round
	var counts [2]int
	var length, polled, all time.Duration
	for range rounds {
		kind := 0
		if length > 12*time.Millisecond {
			kind = 1
		}
		counts[kind]++
		p.Restart()
		length = 0
		for piece := (Piece{}); !piece.Last; {
			piece = p.Next(load)
			from := length + piece.Pause
			length = from + piece.Poll
			polled += piece.Poll
			for at := from; at < length; {
				i := int(at / bin)
				next := min(time.Duration(i+1)*bin, length)
				if i < len(after[kind]) {
					after[kind][i] += next - at
				}
				at = next
			}
		}
		all += length
	}
	if poll, round := polled/rounds, all/rounds; (poll-2*time.Millisecond).Abs() > 20*time.Microsecond || (round-12*time.Millisecond).Abs() > 50*time.Microsecond {
		t.Errorf("rounds of %v, polled for %v", round, poll)
	}
	for kind, n := range counts {
		for i, d := range after[kind][1:] { // in the first bin there is no piece that began before
			if part := d.Seconds() / bin.Seconds() / float64(n); part < 0.11 || part > 0.22 {
				t.Errorf("after a round of kind %d: polled for %.3f of the time at %v, want about a sixth", kind, part, time.Duration(i+1)*bin)
			}
		}
	}
}
