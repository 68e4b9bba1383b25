package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/clock"
)

// clockAlarm waits by a simulated clock.
type clockAlarm struct {
	clock clock.Clock
	count atomic.Uint32
	mu    sync.Mutex
	end   context.CancelFunc // of the wait; nil: there is none
}

func newClockAlarm(c clock.Clock) *clockAlarm { return &clockAlarm{clock: c} }

func (a *clockAlarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count.Add(1)
	if a.end != nil {
		a.end()
	}
}

func (a *clockAlarm) reading() uint32 { return a.count.Load() }

func (a *clockAlarm) wait(reading uint32, until time.Duration) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.mu.Lock()
	if a.count.Load() != reading {
		cancel()
	}
	a.end = cancel
	a.mu.Unlock()
	if until == 0 {
		<-ctx.Done()
		return false
	}
	return a.clock.WaitUntil(ctx, until) == nil
}

// TestThreadAlarm: it waits until an instant and no less, and a ring before or during the wait ends
// it.
func TestThreadAlarm(t *testing.T) {
	a := &threadAlarm{log: slog.New(slog.DiscardHandler)}
	ended := make(chan bool)
	wait := func(reading uint32, until time.Duration) {
		go func() { ended <- a.wait(reading, until) }()
	}
	until := clock.Real{}.Now() + ms
	wait(a.reading(), until)
	if came := <-ended; !came || (clock.Real{}).Now() < until {
		t.Errorf("came %v, %v before its instant", came, until-clock.Real{}.Now())
	}
	before := a.reading()
	a.ring()
	for _, until := range []time.Duration{0, clock.Real{}.Now() + time.Hour} {
		wait(before, until)
		if <-ended {
			t.Errorf("until %v: the instant came, after a ring", until)
		}
		wait(a.reading(), until)
		a.ring()
		if <-ended {
			t.Errorf("until %v: the instant came, beside a ring", until)
		}
	}
}

// BenchmarkAlarm measures how late waits of 0.1 to 2.2 ms end, as those for the end of a kernel do, by
// the scheduler's alarm and by the runtime's timers.
func BenchmarkAlarm(b *testing.B) {
	for name, wait := range map[string]func(until time.Duration){
		"alarm":   func(until time.Duration) { alarmFor(b).wait(0, until) },
		"runtime": func(until time.Duration) { _ = clock.Real{}.WaitUntil(b.Context(), until) },
	} {
		b.Run(name, func(b *testing.B) {
			var late, most time.Duration
			n := 0
			for b.Loop() {
				until := clock.Real{}.Now() + 100*time.Microsecond + time.Duration(n%300)*7*time.Microsecond
				wait(until)
				d := clock.Real{}.Now() - until
				late, most = late+d, max(most, d)
				n++
			}
			b.ReportMetric(float64(late.Microseconds())/float64(n), "µs-late")
			b.ReportMetric(float64(most.Microseconds()), "µs-late-at-most")
		})
	}
}

// alarmFor returns an alarm that nobody rings, without precedence.
func alarmFor(b *testing.B) *threadAlarm {
	b.Helper()
	return &threadAlarm{log: slog.New(slog.DiscardHandler), raised: true}
}
