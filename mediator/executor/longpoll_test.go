package executor

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// TestLongPoll gives for how long the next wait is polled, by the limit and the waits so far.
func TestLongPoll(t *testing.T) {
	const limit = 5 * time.Millisecond
	const ms = time.Millisecond
	times := func(n int, d ...time.Duration) (all []time.Duration) {
		for range n {
			all = append(all, d...)
		}
		return all
	}
	for name, c := range map[string]struct {
		limit time.Duration
		waits []time.Duration
		want  time.Duration
	}{
		"nothing known":                              {limit, nil, 0},
		"too little known":                           {limit, times(minPaidWaits-1, 3*ms), 0},
		"it doubles":                                 {limit, times(4, 3*ms), 8 * PollWindow},
		"until it covers the waits":                  {limit, times(20, 3*ms), 16 * PollWindow},
		"or comes to the limit":                      {limit, times(20, 4*ms), limit},
		"short waits ask for little":                 {limit, times(20, PollWindow), PollWindow},
		"a wait beyond the limit halves it":          {limit, append(times(20, 4*ms), 6*ms), limit / 2},
		"one that would have paid doubles it again":  {limit, append(times(20, 4*ms), 6*ms, 3*ms), limit},
		"most waits are beyond the limit":            {limit, times(20, 6*ms, 6*ms, 3*ms), 0},
		"those that begin to be":                     {limit, append(times(20, 3*ms), times(5, 6*ms)...), 0},
		"no limit":                                   {0, times(20, 3*ms), 0},
		"waits beyond the limit, and short ones now": {limit, append(times(20, 6*ms), times(9, 3*ms)...), 16 * PollWindow},
	} {
		var l longPoll
		for _, w := range c.waits {
			l.record(w, c.limit)
		}
		if got := l.length(c.limit); got != c.want {
			t.Errorf("%s: polls for %v, want %v", name, got, c.want)
		}
	}
	var l longPoll
	for range 8 {
		l.record(3*ms, limit)
	}
	if got := l.length(ms); got != ms {
		t.Errorf("under a lower limit: %v", got)
	}
	l.record(3*ms, 0)
	if got := l.length(limit); got != 0 {
		t.Errorf("after a wait without a limit: %v", got)
	}
}

// TestLongPollPays: no wait is polled for more than the limit, and at most two waits are polled in
// vain for each that ended within the limit.
func TestLongPollPays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "limit"))
		var l longPoll
		paid, vain := 0, 0
		for range rapid.IntRange(0, 200).Draw(t, "waits") {
			wait := time.Duration(rapid.Int64Range(0, 2*int64(limit)+1).Draw(t, "wait"))
			length := l.length(limit)
			if length < 0 || length > limit {
				t.Fatalf("polls for %v, the limit is %v", length, limit)
			}
			if length > 0 && wait > limit {
				vain++
			}
			if wait <= limit {
				paid++
			}
			l.record(wait, limit)
			if vain > 2*paid {
				t.Fatalf("%d waits polled in vain, %d ended within the limit", vain, paid)
			}
		}
	})
}

// restful is a guest that sends a command some time after each was carried out, in simulated time
// that passes while its executor polls or sleeps.
type restful struct {
	mu    sync.Mutex
	r     *rig
	guest *guestEnd
	clock clock.Sim
	last  time.Duration // when it last sent one
	pause func() time.Duration
	next  time.Duration // the pause that is under way
	sent  int
	yield time.Duration // what a yield takes
}

// passes lets time pass, at most to the end of the pause.
func (p *restful) passes(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.Advance(min(d, p.last+p.next-p.clock.Now()))
	p.r.page.Beat(p.clock.Now())
	if now := p.clock.Now(); now >= p.last+p.next {
		if _, _, err := p.guest.com.Fetch(make([]abi.Completion, ringEntries)); err != nil {
			panic(err)
		}
		p.guest.send(abi.Header{Op: abi.OpNop}, abi.Empty{})
		p.last, p.next = now, p.pause()
		p.sent++
	}
}

// runs has the guest send n commands, and returns how often its executor slept.
func (p *restful) runs(n int) uint64 {
	p.r.x.o.Clock = &p.clock
	p.r.x.yield = func() { p.passes(p.yield) }
	p.next = p.pause()
	ctx, cancel := context.WithCancel(p.r.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.r.x.Run(ctx) }()
	slot := p.r.page.Context(0)
	slept := slot.Counters().Wakeups
	began := slept
	for {
		p.mu.Lock()
		sent := p.sent
		p.mu.Unlock()
		if sent >= n {
			break
		}
		if now := slot.Counters().Wakeups; now != slept {
			slept = now
			p.passes(time.Hour)
			slot.Wake()
		}
		runtime.Gosched()
	}
	cancel()
	if err := <-done; err != nil {
		p.r.t.Error(err)
	}
	return slot.Counters().Wakeups - began
}

// TestLaunchAfterAPause: the executor of an urgent guest, which the daemon lets poll, is awake
// after pauses of 1 to 5 ms; another's sleeps in each. If pauses are longer, or other threads want
// the processor, the urgent guest's sleeps, too.
func TestLaunchAfterAPause(t *testing.T) {
	const launches, short = 200, 20 * time.Microsecond
	for name, c := range map[string]struct {
		limit, least, most, yield time.Duration
		min, max                  uint64
	}{
		"urgent":                 {5 * time.Millisecond, time.Millisecond, 5 * time.Millisecond, short, 0, launches / 10},
		"not urgent":             {0, time.Millisecond, 5 * time.Millisecond, short, launches - 10, launches + 10},
		"urgent, long pauses":    {5 * time.Millisecond, 6 * time.Millisecond, 9 * time.Millisecond, short, launches - 10, launches + 10},
		"urgent, busy processor": {5 * time.Millisecond, time.Millisecond, 5 * time.Millisecond, time.Millisecond, launches * 8 / 10, launches + 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			r.page.Context(0).Reset(1)
			r.page.SetPollLimit(c.limit)
			random := rand.New(rand.NewPCG(1, 2))
			p := &restful{r: r, yield: c.yield, guest: r.open(), pause: func() time.Duration {
				return c.least + time.Duration(random.Int64N(int64(c.most-c.least)))
			}}
			if slept := p.runs(launches); slept < c.min || slept > c.max {
				t.Errorf("its executor slept %d times in %d pauses, want %d to %d", slept, launches, c.min, c.max)
			}
		})
	}
}

// TestPollLimit: a guest's executors share the daemon's limit. A silent daemon allows nothing, and
// an executor without a channel polls nothing.
func TestPollLimit(t *testing.T) {
	const limit, now = 4 * time.Millisecond, time.Second
	r := newRig(t, gpu.ContextOptions{})
	r.page.Beat(now)
	r.page.SetPollLimit(limit)
	r.page.Context(0).Reset(1)
	wants := func(why string, now, want time.Duration) {
		t.Helper()
		if got := r.x.pollLimit(now); got != want {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
	}
	wants("without a channel", now, 0)
	r.open()
	wants("alone", now, limit)
	r.page.Context(1).Reset(2)
	wants("two executors", now, limit/2)
	wants("a silent daemon", now+time.Second, 0)
	r.page.SetPollLimit(0)
	wants("not allowed", now, 0)
	r.page.SetPollLimit(time.Hour)
	wants("more than there can be", now, 10*time.Millisecond)
}
