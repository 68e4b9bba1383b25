package ipc

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newAheadPage(t *testing.T, contexts int) (*ControlPage, []*Admitter) {
	t.Helper()
	p, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*Admitter
	for i := range contexts {
		p.Context(i).Reset(1)
		p.AddChange()
		all = append(all, p.Admitter(i))
	}
	return p, all
}

// Launches for which contexts ask for room.
var (
	aLong = FetchAhead{Launches: 1, Long: true}
	brief = FetchAhead{Launches: 1, Work: 400 * time.Microsecond}
)

const aheadRoom = time.Millisecond

// TestFetchAheadWord: a FetchAhead is read as it was written, within the word's bounds.
func TestFetchAheadWord(t *testing.T) {
	p, _ := newAheadPage(t, 1)
	for in, want := range map[FetchAhead]FetchAhead{
		{}:    {},
		aLong: aLong,
		{Launches: 16, Work: time.Millisecond, Long: true}: {Launches: 16, Work: time.Millisecond, Long: true},
		{Launches: -1, Work: -1}:                           {},
		{Launches: 1 << 30, Work: 1 << 60}:                 {Launches: fetchAheadMaxLaunches, Work: fetchAheadMaxWork},
	} {
		if p.Context(0).SetFetchAhead(in); p.Context(0).FetchAhead() != want {
			t.Errorf("%+v is read as %+v, want %+v", in, p.Context(0).FetchAhead(), want)
		}
	}
}

// TestRoomIsSharedByContexts: nothing goes beside another context's long launch, and a long launch
// goes beside nothing; short ones go beside each other while their time fits.
func TestRoomIsSharedByContexts(t *testing.T) {
	for name, c := range map[string]struct {
		there []FetchAhead
		asks  FetchAhead
		want  Admission
	}{
		"alone":             {nil, aLong, Admitted},
		"beside a long one": {[]FetchAhead{aLong}, brief, Full},
		"long beside brief": {[]FetchAhead{brief}, aLong, Full},
		"two brief":         {[]FetchAhead{brief}, brief, Admitted},
		"three brief":       {[]FetchAhead{brief, brief}, brief, Full},
	} {
		t.Run(name, func(t *testing.T) {
			p, all := newAheadPage(t, 4)
			for i, a := range c.there {
				p.Context(i + 1).SetFetchAhead(a)
			}
			if got := all[0].Admit(c.asks, aheadRoom, false); got != c.want {
				t.Errorf("answer %d, want %d", got, c.want)
			}
			if got := p.Context(0).FetchAhead(); (got == c.asks) != (c.want == Admitted) {
				t.Errorf("the page says %+v", got)
			}
			p.Context(1).Free()
			p.Context(2).Free()
			if got := all[0].Admit(c.asks, aheadRoom, false); got != Admitted {
				t.Errorf("with the others gone: %d", got)
			}
		})
	}
}

// TestRoomGoesToTheLongestWait: the context that has waited longest goes first, unless another
// jumps.
func TestRoomGoesToTheLongestWait(t *testing.T) {
	p, all := newAheadPage(t, 3)
	p.Context(1).SetWaiting(10)
	p.Context(2).SetWaiting(10)
	for i, want := range []Admission{Behind, Admitted, Behind} {
		if got := all[i].Admit(FetchAhead{}, aheadRoom, false); got != want {
			t.Errorf("context %d: %d, want %d", i, got, want)
		}
	}
	futex := p.Context(1).Futex()
	if all[0].WakeNext(); p.Context(1).Futex() == futex {
		t.Error("the first of those that wait is not rung for")
	}
	if got := all[0].Admit(brief, aheadRoom, true); got != Admitted {
		t.Errorf("one that passes over: %d", got)
	}
}

// TestLongLaunchesAreAlone: contexts ask concurrently. Only one long launch is on the GPU at a
// time, and in the end all of them have been.
func TestLongLaunchesAreAlone(t *testing.T) {
	const contexts, turns = 4, 2000
	p, all := newAheadPage(t, contexts)
	var there, most atomic.Int32
	var wg sync.WaitGroup
	begun := time.Now()
	for i, r := range all {
		wg.Go(func() {
			for range turns {
				for waits := false; r.Admit(aLong, aheadRoom, false) != Admitted; runtime.Gosched() {
					if !waits {
						waits = true
						p.Context(i).SetWaiting(time.Since(begun) + 1)
					}
				}
				p.Context(i).SetWaiting(0)
				if n := there.Add(1); n > most.Load() {
					most.Store(n)
				}
				there.Add(-1)
				p.Context(i).SetFetchAhead(FetchAhead{})
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}
