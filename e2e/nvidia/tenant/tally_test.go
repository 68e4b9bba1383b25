package tenant

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestTallyTellsLostLaunchesAndBlocks fills words as launches do, and then not quite.
func TestTallyTellsLostLaunchesAndBlocks(t *testing.T) {
	const launches = 5
	s := &Spin{Blocks: 7, Threads: 3, Iterations: 1000}
	tl := tallyOf(s)
	if tl.words != 16 {
		t.Fatalf("%d words for 21 threads", tl.words)
	}
	g := &memoryGPU{mem: make([]byte, 4*tl.words)}
	block := func(n int) {
		for thread := n * s.Threads; thread < (n+1)*s.Threads; thread++ {
			word := thread % tl.words
			x := uint32(word)
			for range s.Iterations {
				x = x*1664525 + 1013904223
			}
			b := g.mem[4*word:]
			binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)+x)
		}
	}
	for range launches {
		for n := range s.Blocks {
			block(n)
		}
	}
	if err := tl.check(t.Context(), g, launches); err != nil {
		t.Errorf("of what is right: %v", err)
	}
	if err := tl.check(t.Context(), g, launches+1); err == nil || !strings.Contains(err.Error(), "16 of 16 words") {
		t.Errorf("a launch was lost: %v", err)
	}
	block(6)
	if err := tl.check(t.Context(), g, launches); err == nil || !strings.Contains(err.Error(), "3 of 16 words") {
		t.Errorf("a block ran twice: %v", err)
	}
	if err := tl.clear(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := tl.check(t.Context(), g, 0); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}
