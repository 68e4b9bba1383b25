package tenant

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"vgpud/gpu/corpus"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// newCardQueue returns both ends of a queue of 8 entries.
func newCardQueue(t *testing.T) (*eventqueue.Poller, *eventqueue.Launcher) {
	t.Helper()
	area := make([]byte, abi.EventAreaBytes)
	p, err := eventqueue.NewPoller(area, 0, abi.EventRow{Function: 1, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, nil, eventEntries)
	if err != nil {
		t.Fatal(err)
	}
	l, err := eventqueue.Attach(area, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p, l
}

// TestStreamKeepsEventsUnderWay has events end a millisecond after as many are under way as there may
// be. The card sees one end, and launches another event in its place.
func TestStreamKeepsEventsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		for name, c := range map[string]struct {
			s                   Stream
			most, all, launches int
			window              time.Duration
		}{
			"so often":                {Stream{Count: 10, Depth: 3}, 3, 10, 10, 8 * ms},
			"one at a time":           {Stream{Count: 3}, 1, 3, 3, 3 * ms},
			"more than the queue has": {Stream{Count: 16, Depth: 99}, eventEntries, 16, 16, 9 * ms},
			// Ends are at 1, 2, … 7 ms, and two at the last: before, in and after the window.
			"in a window": {Stream{Depth: 2, Warm: 2 * ms, For: 3 * ms, After: 2 * ms}, 2, 8, 4, 3 * ms},
		} {
			p, q := newCardQueue(t)
			most, rung := 0, 0
			card := newCard(&c.s, time.Now())
			err := card.stream(q, func() error {
				q.Launch()
				rung++
				most = max(most, q.Flying())
				if q.Flying() < min(max(c.s.Depth, 1), eventEntries) && rung != c.s.Count {
					return nil
				}
				time.Sleep(ms) // of simulated time
				for {
					entry, ok := p.Next(nil)
					if !ok {
						return nil
					}
					p.Done(entry)
				}
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r := &card.ran
			if most != c.most || r.All != c.all || r.Launches != c.launches || r.Window != c.window {
				t.Errorf("%s: at most %d under way, %d of %d in %v", name, most, r.Launches, r.All, r.Window)
			}
			if p.Counts().Dropped != 0 {
				t.Errorf("%s: %d rings dropped", name, p.Counts().Dropped)
			}
		}
	})
}

// TestProductsHaveSoManyBlocks holds that a product of the figure's size is as large as it says, and
// within its memory.
func TestProductsHaveSoManyBlocks(t *testing.T) {
	for blocks, want := range map[int][2]uint32{2: {2, 1}, 120: {12, 10}, 1: {1, 1}, 7: {7, 1}} {
		m := &memories{}
		j, err := loadWork(t.Context(), m, &Work{Kernel: "matmul", Size: blocks})
		if err != nil {
			t.Fatal(err)
		}
		s := &j.steps[0]
		if s.grid != [3]uint32{want[0], want[1], 1} || s.block != [3]uint32{tile, tile, 1} {
			t.Errorf("%d blocks: grid %v of %v", blocks, s.grid, s.block)
		}
		side := uint64(tile * want[0])
		if want[1] > want[0] || len(m.bytes) != 3 || m.bytes[2] != 4*side*side || len(j.results) != 1 {
			t.Errorf("%d blocks: memory of %v bytes", blocks, m.bytes)
		}
	}
}

// TestPacketsLive forwards the packets of a stream as often as it says, by the corpus's own
// kernel's rules: the header's sum is right, and its time to live is long enough.
func TestPacketsLive(t *testing.T) {
	k, ok := corpus.ByName("ipv4")
	if !ok {
		t.Fatal("no kernel")
	}
	packets := lively(k.Case(corpus.Trivial, 1).Buffers[0].Init)
	for at := 0; at < len(packets); at += slotBytes {
		header := packets[at+16:][:20]
		sum := uint32(0)
		for i := 0; i < len(header); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(header[i:]))
		}
		if sum = sum&0xffff + sum>>16; sum&0xffff+sum>>16 != 0xffff || header[0] != 0x45 || header[8] != Lively+1 {
			t.Fatalf("packet %d has the header %x", at/slotBytes, header)
		}
	}
	m := &memories{}
	j, err := loadWork(t.Context(), m, &Work{Kernel: "ipv4", Size: 65})
	if err != nil {
		t.Fatal(err)
	}
	s := &j.steps[0]
	if s.grid[0] != 3 || binary.LittleEndian.Uint32(s.params[len(s.params)-4:]) != 65 || j.results[0].bytes != 65*slotBytes {
		t.Errorf("65 packets: grid %v, parameters %x, %d bytes", s.grid, s.params, j.results[0].bytes)
	}
	if err := j.clear(t.Context(), m); err != nil || len(m.last) != 65*slotBytes || m.last[ttlAt] != Lively+1 {
		t.Errorf("cleared: %d bytes, %v", len(m.last), err)
	}
	for _, w := range []Work{{"ipv4", 1 << 20}, {"ipv4", 0}, {"vecadd", 1}} {
		if _, err := loadWork(t.Context(), m, &w); err == nil {
			t.Errorf("%+v is no error", w)
		}
	}
}

// memories is a machine that remembers how much memory was asked for, and what was copied last.
type memories struct {
	machine
	bytes []uint64
	last  []byte
}

func (m *memories) load(context.Context, string) (module, error) { return anyModule{}, nil }

func (m *memories) alloc(_ context.Context, bytes uint64) (uint64, error) {
	m.bytes = append(m.bytes, bytes)
	return 1 << 20 * uint64(len(m.bytes)), nil
}

func (m *memories) copyIn(_ context.Context, _ uint64, src []byte) error {
	m.last = src
	return nil
}

type anyModule struct{}

func (anyModule) function(context.Context, string) (function, error) { return anyFunction{}, nil }

func (anyModule) global(context.Context, string) (uint64, error) { return 0, nil }

type anyFunction struct{}

func (anyFunction) params(args ...[]byte) (all []byte, err error) {
	for _, a := range args {
		all = append(all, a...)
	}
	return all, nil
}

func (anyFunction) form() *Form { return nil }

// TestBurnWalksThroughAllLines holds that memory's program visits every line of its memory, and none
// twice before all others, and that both programs get work done in their window and not before it.
func TestBurnWalksThroughAllLines(t *testing.T) {
	const n = 64
	var x burning
	x.lay(n)
	seen := make(map[uint32]bool)
	for at := uint32(0); !seen[at]; at = x.lines[at][0] {
		seen[at] = true
	}
	if len(seen) != n {
		t.Errorf("a circle of %d of %d lines", len(seen), n)
	}
	x.walk()
	for _, kind := range []string{"compute", "memory"} {
		var tn tenant
		for window := 10 * time.Millisecond; ; window *= 2 { // others may have the processors for all of one
			at := time.Now().Add(window / 2)
			done, err := tn.burn(&Burn{Kind: kind, Bytes: 64 * n, At: at.UnixNano(), For: window})
			if err != nil || time.Since(at) < window {
				t.Errorf("%s: %d, %v, after %v of %v", kind, done, err, time.Since(at), window)
			}
			if done > 0 {
				break
			}
			if window > time.Minute {
				t.Fatalf("%s: nothing done in %v", kind, window)
			}
		}
		if done, err := tn.burn(&Burn{Kind: kind, Bytes: 64 * n}); done != 0 || err != nil {
			t.Errorf("%s, prepared: %d, %v", kind, done, err)
		}
	}
	var tn tenant
	if _, err := tn.burn(&Burn{Kind: "network"}); err == nil {
		t.Error("any program burns")
	}
	if _, err := tn.do(t.Context(), &Request{Free: true}); err == nil {
		t.Error("a program without a GPU knows its memory")
	}
}
