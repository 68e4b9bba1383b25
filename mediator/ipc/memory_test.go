package ipc

import (
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestMemoryIsSharedByContexts: contexts take and give memory, and end. The memory taken is always the
// plain sum, and never more than the limit.
func TestMemoryIsSharedByContexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page, err := NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := page.Close(); err != nil {
				t.Error(err)
			}
		}()
		limit := rapid.Uint64Range(1, 1<<40).Draw(t, "limit")
		var shares [MaxContexts]*Memory
		for i := range shares {
			shares[i] = page.Memory(i, limit)
		}
		var taken [MaxContexts]uint64
		var sum uint64
		slot := rapid.IntRange(0, MaxContexts-1)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				i := slot.Draw(t, "slot")
				n := rapid.OneOf(rapid.Uint64Range(0, limit), rapid.Just(limit-sum), rapid.Uint64()).Draw(t, "bytes")
				want := n <= limit-sum
				if got := shares[i].Take(n); got != want {
					t.Fatalf("Take(%d) with %d of %d taken: %v", n, sum, limit, got)
				}
				if want {
					taken[i] += n
					sum += n
				}
			},
			"give": func(t *rapid.T) {
				i := slot.Draw(t, "slot")
				n := rapid.Uint64Range(0, taken[i]).Draw(t, "bytes")
				shares[i].Give(n)
				taken[i] -= n
				sum -= n
			},
			"end": func(t *rapid.T) {
				i := slot.Draw(t, "slot")
				page.Context(i).Free()
				sum -= taken[i]
				taken[i] = 0
			},
			"begin": func(t *rapid.T) {
				i := slot.Draw(t, "slot")
				page.Context(i).Reset(1)
				sum -= taken[i]
				taken[i] = 0
			},
			"": func(t *rapid.T) {
				free, total := shares[0].Room()
				if free != limit-sum || total != limit || page.MemoryTaken() != sum {
					t.Fatalf("room for %d of %d with %d taken, want %d of %d with %d", free, total, page.MemoryTaken(), limit-sum, limit, sum)
				}
			},
		})
	})
}

func TestMemoryWithoutALimit(t *testing.T) {
	page, _ := newPages(t)
	a, b := page.Memory(0, 0), page.Memory(1, 0)
	if !a.Take(1<<50) || !b.Take(1<<50) || page.MemoryTaken() != 1<<51 {
		t.Errorf("two times 1<<50: %d", page.MemoryTaken())
	}
	for range 64 { // not enough for words to overflow
		a.Take(1 << 62)
		a.Take(^uint64(0))
	}
	if page.MemoryTaken() != 1<<51 {
		t.Errorf("what no GPU has was taken: %d", page.MemoryTaken())
	}
}

// TestMemoryLimitOnPage: a limit that the daemon sets takes the place of the one that contexts were set
// up with, at their next allocation.
func TestMemoryLimitOnPage(t *testing.T) {
	serve, exec := newPages(t)
	m := exec.Memory(0, 100)
	take := func(n uint64, want bool) {
		t.Helper()
		if got := m.Take(n); got != want {
			free, total := m.Room()
			t.Errorf("take %d: %v, with %d of %d free", n, got, free, total)
		}
	}
	take(60, true)
	serve.SetTerms(Terms{Weight: 1, MemoryLimitBytes: 50})
	take(1, false)
	if free, total := m.Room(); free != 0 || total != 50 {
		t.Errorf("room for %d of %d with 60 taken", free, total)
	}
	m.Give(20)
	take(10, true)
	take(1, false)
	serve.SetTerms(Terms{Weight: 1, MemoryLimitBytes: 200})
	take(150, true)
	serve.SetTerms(Terms{Weight: 1})
	take(1<<40, true)
	if n, ok := exec.MemoryLimit(); n != 0 || !ok || exec.Terms().MemoryLimitBytes != 0 {
		t.Errorf("no limit is %d, %v", n, ok)
	}
}

// TestMemoryTakenConcurrently: of contexts that ask at once for what only one can have, one gets
// it, and the limit is never exceeded.
func TestMemoryTakenConcurrently(t *testing.T) {
	page, other := newPages(t)
	const rounds, contexts = 500, 8
	for range rounds {
		var won atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range contexts {
			m := []*ControlPage{page, other}[i%2].Memory(i, 100)
			all.Go(func() {
				<-start
				if m.Take(51 + uint64(i)) {
					won.Add(1)
				}
			})
		}
		close(start)
		all.Wait()
		if won.Load() != 1 || page.MemoryTaken() > 100 {
			t.Fatalf("%d contexts have more than half each, %d of 100 bytes", won.Load(), page.MemoryTaken())
		}
		for i := range contexts {
			page.Context(i).Free()
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	page, err := NewControlPage()
	if err != nil {
		b.Fatal(err)
	}
	m := page.Memory(3, 1<<30)
	b.ReportAllocs()
	for b.Loop() {
		if !m.Take(4096) {
			b.Fatal("no room")
		}
		m.Give(4096)
	}
	if err := page.Close(); err != nil {
		b.Error(err)
	}
}

// TestGrant: a context that was granted a part of the memory takes no more than that, and what it
// takes counts for the guest.
func TestGrant(t *testing.T) {
	_, exec := newPages(t)
	granted, other := exec.Memory(0, 100).Granted(60), exec.Memory(1, 100)
	if granted.Take(61) || !granted.Take(50) {
		t.Error("took more than was granted, or nothing")
	}
	if free, total := granted.Room(); free != 10 || total != 60 {
		t.Errorf("%d of %d are free, want 10 of 60", free, total)
	}
	if !other.Take(45) || granted.Take(6) || !granted.Take(5) {
		t.Error("the guest's limit does not hold for a context that was granted memory")
	}
	if free, total := granted.Room(); free != 0 || total != 60 {
		t.Errorf("%d of %d are free, want 0 of 60", free, total)
	}
}

// TestExemptMemory checks that a context may take its grant whatever the guest's limit is, while it is
// exempt from that, and that others may not.
func TestExemptMemory(t *testing.T) {
	page, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	}()
	m, plain := page.Memory(0, 50).Granted(80), page.Memory(1, 50)
	m.SetExempt(true)
	plain.SetExempt(true) // it has no grant
	if plain.Take(51) || !m.Take(80) || m.Take(1) {
		t.Error("a context has not just its grant")
	}
	m.SetExempt(false)
	if m.Give(20); m.Take(1) || plain.Take(1) {
		t.Error("more than the limit is to be had")
	}
}

// TestMemoryPeak: the peak is the most that a context has taken at a time, not what was refused.
func TestMemoryPeak(t *testing.T) {
	page, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	}()
	m := page.Memory(0, 100).Granted(60)
	for _, n := range []uint64{20, 30} {
		if !m.Take(n) {
			t.Fatalf("%d bytes are refused", n)
		}
	}
	if m.Take(11) {
		t.Error("more was taken than granted")
	}
	m.Give(45)
	if !m.Take(40) || m.Peak() != 50 {
		t.Errorf("the peak is %d, want 50", m.Peak())
	}
	if other := page.Memory(1, 100); other.Peak() != 0 {
		t.Errorf("another context's is %d", other.Peak())
	}
}
