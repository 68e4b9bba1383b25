package ipc

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newAheadPage(t *testing.T, contexts int) (*Page, []*Ranks) {
	t.Helper()
	p, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*Ranks
	for i := range contexts {
		p.Context(i).Reset(1)
		p.AddChange()
		all = append(all, p.Ranks(i))
	}
	return p, all
}

// Launches as contexts ask for room for them.
var (
	aLong = Ahead{Launches: 1, Long: true}
	brief = Ahead{Launches: 1, Work: 400 * time.Microsecond}
)

const aheadRoom = time.Millisecond

// TestAheadIsAWord: what a context has on the GPU is read as it was written, within what
// the word has room for.
func TestAheadIsAWord(t *testing.T) {
	p, _ := newAheadPage(t, 1)
	for in, want := range map[Ahead]Ahead{
		{}:    {},
		aLong: aLong,
		{Launches: 16, Work: time.Millisecond, Long: true}: {Launches: 16, Work: time.Millisecond, Long: true},
		{Launches: -1, Work: -1}:                           {},
		{Launches: 1 << 30, Work: 1 << 60}:                 {Launches: aheadMost, Work: aheadMostWork},
	} {
		if p.Context(0).SetAhead(in); p.Context(0).Ahead() != want {
			t.Errorf("%+v is read as %+v, want %+v", in, p.Context(0).Ahead(), want)
		}
	}
}

// TestRoomIsTheGuests: nothing goes beside another context's long launch, nor a long one
// beside anything; brief ones go beside each other as far as their time fits.
func TestRoomIsTheGuests(t *testing.T) {
	for name, c := range map[string]struct {
		there []Ahead
		asks  Ahead
		want  Admission
	}{
		"alone":             {nil, aLong, Admitted},
		"beside a long one": {[]Ahead{aLong}, brief, Full},
		"long beside brief": {[]Ahead{brief}, aLong, Full},
		"two brief":         {[]Ahead{brief}, brief, Admitted},
		"three brief":       {[]Ahead{brief, brief}, brief, Full},
	} {
		t.Run(name, func(t *testing.T) {
			p, all := newAheadPage(t, 4)
			for i, a := range c.there {
				p.Context(i + 1).SetAhead(a)
			}
			if got := all[0].Admit(c.asks, aheadRoom, false); got != c.want {
				t.Errorf("answer %d, want %d", got, c.want)
			}
			if got := p.Context(0).Ahead(); (got == c.asks) != (c.want == Admitted) {
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

// TestRoomIsTakenInTurn: who has waited longer goes first, unless it is passed over.
func TestRoomIsTakenInTurn(t *testing.T) {
	p, all := newAheadPage(t, 3)
	p.Context(1).SetWaiting(10)
	p.Context(2).SetWaiting(10)
	for i, want := range []Admission{Behind, Admitted, Behind} {
		if got := all[i].Admit(Ahead{}, aheadRoom, false); got != want {
			t.Errorf("context %d: %d, want %d", i, got, want)
		}
	}
	bell := p.Context(1).Bell()
	if all[0].Ring(); p.Context(1).Bell() == bell {
		t.Error("the first of those that wait is not rung for")
	}
	if got := all[0].Admit(brief, aheadRoom, true); got != Admitted {
		t.Errorf("one that passes over: %d", got)
	}
}

// TestLongLaunchesAreAlone: however contexts ask at the same time, of long launches only
// one is ever let to the GPU, and each of them at last.
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
				p.Context(i).SetAhead(Ahead{})
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}
