package ipc

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type span struct{ start, end time.Duration }

// taken returns the intervals that ReadAll reports now.
func taken(w WorkLog) (s []span) {
	w.ReadAll(func(start, end time.Duration) { s = append(s, span{start, end}) })
	return s
}

func newWork(t testing.TB) WorkLog {
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
	return p.WorkLog(MaxContexts - 1)
}

// TestWorkLogIsRead: intervals are read one by one and in order, and the newest again as long as
// there is no newer one.
func TestWorkLogIsRead(t *testing.T) {
	w := newWork(t)
	a, b, c := span{100, 200}, span{200, 300}, span{50, 120}
	w.Add(a.start, a.end)
	w.Add(b.start, b.end)
	w.Add(c.start, c.end) // of another channel
	w.Add(400, 400)       // nothing
	if got := taken(w); !slices.Equal(got, []span{a, b, c}) {
		t.Errorf("told %v", got)
	}
	w.Add(300, 310)
	if got := taken(w); !slices.Equal(got, []span{c, {300, 310}}) {
		t.Errorf("then told %v", got)
	}
	if w.Since() != 0 {
		t.Errorf("something runs since %v", w.Since())
	}
	w.SetSince(700)
	if w.Since() != 700 {
		t.Errorf("since %v", w.Since())
	}
}

// TestWorkLogMerges: if many intervals are unread, those that touch become one, but one that was
// read does not change.
func TestWorkLogMerges(t *testing.T) {
	w := newWork(t)
	const us = time.Microsecond
	for i := range time.Duration(mergeFrom) {
		w.Add(i*us, (i+1)*us)
	}
	w.Add(mergeFrom*us, 300*us)
	w.Add(303*us, 400*us) // touches it
	w.Add(200*us, 310*us) // of another channel
	w.Add(500*us, 600*us)
	got := taken(w)
	if want := []span{{200 * us, 400 * us}, {500 * us, 600 * us}}; len(got) != mergeFrom+1 || !slices.Equal(got[mergeFrom-1:], want) {
		t.Errorf("%d spans, at last %v, want %v", len(got), got[max(0, len(got)-3):], want)
	}
	w.Add(601*us, 610*us)
	if got := taken(w); !slices.Equal(got, []span{{500 * us, 600 * us}, {601 * us, 610 * us}}) {
		t.Errorf("then %v", got)
	}
}

// TestWorkLogWithoutAReader: the newest interval is extended by those that there is no room for.
func TestWorkLogWithoutAReader(t *testing.T) {
	w := newWork(t)
	for i := range 2 * WorkLogIntervals {
		w.Add(time.Duration(i)*time.Millisecond, time.Duration(i)*time.Millisecond+time.Microsecond)
	}
	got := taken(w)
	if n := len(got); n != WorkLogIntervals-1 || got[0].start != 0 || got[n-1].end < time.Duration(2*WorkLogIntervals-1)*time.Millisecond {
		t.Errorf("%d spans, to %v", len(got), got[len(got)-1])
	}
	w.Add(time.Hour, time.Hour+1)
	if got = taken(w); len(got) != 2 || got[1] != (span{time.Hour, time.Hour + 1}) {
		t.Errorf("after that %v", got)
	}
}

// TestWorkLogIsWanted: serve records whether it reads; a page of an older version has no log.
func TestWorkLogIsWanted(t *testing.T) {
	p, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	before := p.WorkLog(0).Wanted()
	p.SetWorkLogWanted(true)
	if before || !p.WorkLog(0).Wanted() {
		t.Errorf("wanted %v, then %v", before, p.WorkLog(0).Wanted())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if p, err = OpenControlPage(oldPage(t, 2, 2)); err != nil {
		t.Fatal(err)
	}
	p.SetWorkLogWanted(true)
	w := p.WorkLog(0)
	w.Add(1, 2)
	w.SetSince(3)
	if w.Wanted() || w.Since() != 0 || taken(w) != nil {
		t.Error("an old page has an account of work")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestWorkLogWithImpossibleWords: whatever the writer wrote, the log is read through at most once.
func TestWorkLogWithImpossibleWords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWork(t)
		w.l.written.Store(rapid.Uint64().Draw(rt, "begun"))
		w.l.read.Store(rapid.Uint64().Draw(rt, "taken"))
		if n := len(taken(w)); n > WorkLogIntervals {
			rt.Fatalf("%d spans", n)
		}
		w.Add(1, 2)
		taken(w)
	})
}

// TestWorkLogLosesNothing: a writer and a reader run concurrently. The union of what is read is
// that of what was written, and no interval is read that was not written.
func TestWorkLogLosesNothing(t *testing.T) {
	w := newWork(t)
	const (
		n    = 20000
		gap  = 20 * time.Microsecond
		long = 10 * time.Microsecond
	)
	waiting := func() uint64 { return w.l.written.Load() - w.l.read.Load() }
	// Every third interval touches the one before and extends it, and every fifth comes before it.
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range time.Duration(n) {
			start := i * (long + gap)
			switch {
			case i%3 == 1:
				w.Add(start-gap, start+long) // from the end of the last one
			case i%5 == 2:
				w.Add(start+long/2, start+long)
				w.Add(start, start+long/2)
			default:
				w.Add(start, start+long)
			}
			for waiting() > WorkLogIntervals-8 {
				runtime.Gosched() // or else it would begin to take in gaps
			}
		}
	})
	done := make(chan struct{})
	go func() { writer.Wait(); close(done) }()
	covered := make([]bool, n) // the thirds of each are not told apart
	filled := make([]bool, n)  // the gap before it
	check := func(start, end time.Duration) {
		if end <= start {
			t.Errorf("from %v to %v", start, end)
		}
		for i := start / (long + gap); i < n && i*(long+gap) < end; i++ {
			at := i * (long + gap)
			if i%3 == 0 && start < at && i > 0 {
				t.Fatalf("%v to %v: has the gap before %v", start, end, at)
			}
			if start <= at && end >= at+long {
				covered[i] = true
			}
			if i > 0 && start <= at-gap && end > at {
				filled[i] = true
			}
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if waiting() > mergeFrom+8 { // so that spans grow while they are read
			w.ReadAll(check)
		}
		runtime.Gosched()
	}
	w.ReadAll(check)
	for i := range n {
		if !covered[i] && i%5 != 2 || i%3 == 1 && !filled[i] {
			t.Fatalf("span %d of %d was not told whole", i, n)
		}
	}
}

// BenchmarkWorkLog adds a launch to a log that is wanted.
func BenchmarkWorkLog(b *testing.B) {
	w := newWork(b)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 30 * time.Microsecond
		w.Add(now, now+20*time.Microsecond)
		w.SetSince(now)
		if now%(100*30*time.Microsecond) == 0 {
			w.ReadAll(func(time.Duration, time.Duration) {})
		}
	}
}
