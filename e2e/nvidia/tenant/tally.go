package tenant

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxTallyWords limits a tally's words. More threads than that share words.
const maxTallyWords = 1 << 18

// tally is a sequence of launches of a kernel that adds its results to words. The words show
// whether every block of every launch ran exactly once and computed correct results.
type tally struct {
	at         uint64
	words      int // a power of two
	threads    int // of a launch
	iterations int
}

// tallyOf returns the tally that does a spin's work.
func tallyOf(s *Spin) *tally {
	threads := s.Blocks * s.Threads
	words := min(1<<(bits.Len(uint(max(threads, 1)))-1), maxTallyWords)
	return &tally{words: words, threads: threads, iterations: s.Iterations}
}

func loadTally(ctx context.Context, m machine, fixed module, s *Spin) (*job, error) {
	f, err := fixed.function(ctx, "tally")
	if err != nil {
		return nil, err
	}
	t := tallyOf(s)
	if t.at, err = m.alloc(ctx, uint64(4*t.words)); err != nil {
		return nil, err
	}
	params, err := f.params(u64(t.at), u32(uint32(t.words-1)), u32(uint32(s.Iterations)))
	if err != nil {
		return nil, err
	}
	return &job{tally: t, steps: []command{{function: f, grid: [3]uint32{uint32(s.Blocks), 1, 1}, block: [3]uint32{uint32(s.Threads), 1, 1}, params: params}}}, nil
}

// clear resets the words for the next launches.
func (t *tally) clear(ctx context.Context, m machine) error {
	return m.copyIn(ctx, t.at, make([]byte, 4*t.words))
}

// check compares the words with the values that the given number of launches must produce.
func (t *tally) check(ctx context.Context, m machine, launches int) error {
	b := make([]byte, 4*t.words)
	if err := m.copyOut(ctx, b, t.at); err != nil {
		return err
	}
	wrong, first := 0, ""
	for i := range t.words {
		got, want := binary.LittleEndian.Uint32(b[4*i:]), t.want(i, launches)
		if got != want {
			if wrong++; wrong == 1 {
				first = fmt.Sprintf("word %d is %#x, want %#x", i, got, want)
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d words are not what %d launches make of them: %s", wrong, t.words, launches, first)
	}
	return nil
}

// want returns the value of a word after the given number of launches.
func (t *tally) want(word, launches int) uint32 {
	a, c := jump(t.iterations)
	adders := t.threads / t.words
	if word < t.threads%t.words {
		adders++
	}
	return uint32(launches) * uint32(adders) * (a*uint32(word) + c)
}

// jump combines n steps of the generator into one: x becomes a*x + c.
func jump(n int) (a, c uint32) {
	a, c = 1, 0
	stepA, stepC := uint32(1664525), uint32(1013904223)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			a, c = stepA*a, stepA*c+stepC
		}
		stepA, stepC = stepA*stepA, stepA*stepC+stepC
	}
	return a, c
}
