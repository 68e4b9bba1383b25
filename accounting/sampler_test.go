package accounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// square is a live source: groups 1 and 2 take turns of 50 µs by the test's clock.
type square struct {
	epoch time.Time
	polls atomic.Int64
	fail  atomic.Bool
	still bool // group 1 executes all the time
}

var errFellOff = errors.New("fell off the bus")

func (s *square) Sample() (Status, error) {
	s.polls.Add(1)
	if s.fail.Load() {
		return Status{}, errFellOff
	}
	now := time.Since(s.epoch)
	st := Status{Clock: now, Valid: true, Group: 1, Busy: true}
	if !s.still && now/(50*time.Microsecond)%2 == 1 {
		st.Group = 2
	}
	return st, nil
}

// recorder is a handler that records its calls.
type recorder struct {
	mu      sync.Mutex
	polled  []Phase
	quiets  []Quiet
	failure error
	plan    func(p *Phase) Plan
	told    chan struct{} // one token a polling phase
}

func newRecorder() *recorder { return &recorder{told: make(chan struct{}, 1000)} }

func (r *recorder) PollEnded(p *Phase) Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := *p
	kept.Groups = append([]GroupTime(nil), p.Groups...)
	r.polled = append(r.polled, kept)
	var plan Plan
	if r.plan != nil {
		plan = r.plan(p)
	}
	select {
	case r.told <- struct{}{}:
	default:
	}
	return plan
}

func (r *recorder) QuietEnded(q *Quiet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := *q
	kept.Watched.Groups = append([]GroupTime(nil), q.Watched.Groups...)
	r.quiets = append(r.quiets, kept)
}

func (r *recorder) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
	close(r.told)
}

// watchFor runs a sampler until rec has seen n polling phases.
func watchFor(t *testing.T, s *Sampler, rec *recorder, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for range n {
		select {
		case <-rec.told:
		case err := <-done:
			t.Fatalf("Run ended early: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// contiguous checks that phases follow each other without a gap, and add up.
func contiguous(t *testing.T, rec *recorder) {
	t.Helper()
	if len(rec.quiets) > 0 && rec.quiets[0].Watched.End == rec.polled[0].Start {
		// The first polling phase follows no quiet time except the pauses between its pieces.
		if got, want := rec.quiets[0].Unwatched, rec.polled[0].Pauses; got != want {
			t.Errorf("before the first polling phase: %v unwatched, want %v", got, want)
		}
		rec.quiets = rec.quiets[1:]
	}
	for i := range rec.quiets {
		q := &rec.quiets[i]
		if q.Watched.Start != rec.polled[i].End || q.Unwatched < 0 {
			t.Errorf("quiet phase %d: from %v, %v unwatched, after a polling phase to %v", i, q.Watched.Start, q.Unwatched, rec.polled[i].End)
		}
		if i+1 >= len(rec.polled) {
			continue
		}
		// The quiet time is the time between the end of measuring and the next polling phase, and
		// the pauses of that phase.
		next := &rec.polled[i+1]
		if want := next.Start - q.Watched.End + next.Pauses; q.Unwatched != want {
			t.Errorf("quiet phase %d: %v unwatched, want %v", i, q.Unwatched, want)
		}
	}
	for i := range rec.polled {
		p := &rec.polled[i]
		if p.Busy()+p.Idle+p.Switching != p.Length() || p.Length() <= 0 {
			t.Errorf("polling phase %d: %v busy, %v idle of %v", i, p.Busy(), p.Idle, p.Length())
		}
	}
}

func TestSamplerAlternates(t *testing.T) {
	for _, config := range []Config{{}, {Full: true}, {Piece: -1}} {
		src, rec := &square{epoch: time.Now()}, newRecorder()
		config.Poll, config.Quiet = 300*time.Microsecond, time.Millisecond
		s, err := NewSampler([]SampledGPU{{Name: "0", Source: src, Handler: rec, Config: config}}, SamplerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watchFor(t, s, rec, 20)
		contiguous(t, rec)
		if none := len(rec.quiets) == 0; none != config.Full {
			t.Errorf("%+v: told of %d quiet phases", config, len(rec.quiets))
		}
		for i := range rec.quiets {
			if q := &rec.quiets[i]; q.Unwatched == 0 {
				t.Errorf("%+v: nothing of quiet phase %d is unwatched", config, i)
			}
		}
		for i := range rec.polled[:len(rec.polled)-1] { // the last may have been cut short
			if p := &rec.polled[i]; (p.Pauses > 0) != (config.Piece >= 0 && !config.Full) {
				t.Errorf("%+v: polling phase %d has pauses of %v", config, i, p.Pauses)
			}
		}
		if s.CPU() <= 0 {
			t.Error("no processor time was counted")
		}
		if p := s.Priority(); !p.Realtime && p.Reason == "" {
			t.Error("no real-time priority and no reason")
		}
	}
}

// leaver is a live source whose group executes except in the two polls that follow the given number
// of polls: the one that finds that the group has left, and one more.
type leaver struct {
	epoch time.Time
	polls atomic.Int64
}

func (l *leaver) Sample() (Status, error) {
	left := l.polls.Add(-1)
	return Status{Clock: time.Since(l.epoch), Valid: true, Group: 1, Busy: left >= 0 || left < -2}, nil
}

// TestSamplerAwaits tests that an awaited group is polled until it has left, however long that
// takes. It would be for a minute if its leaving were not seen.
func TestSamplerAwaits(t *testing.T) {
	const leaving = 100_000 // polls: counted, since the thread may be kept from polling for long
	src, rec := &leaver{epoch: time.Now()}, newRecorder()
	src.polls.Store(-2)
	rec.plan = func(p *Phase) Plan {
		src.polls.Store(leaving)
		return Plan{Load: Load{Active: 2}, Await: []GroupID{1}, AwaitAtMost: time.Minute}
	}
	// Poll all the time, so that a late answer is waited for, too.
	config := Config{Poll: 100 * time.Microsecond, Quiet: time.Millisecond, Full: true}
	s, err := NewSampler([]SampledGPU{{Name: "0", Source: src, Handler: rec, Config: config}}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watchFor(t, s, rec, 5)
	contiguous(t, rec)
	for i, p := range rec.polled[1 : len(rec.polled)-1] { // the last may have been cut short
		if p.Polls < leaving {
			t.Errorf("phase %d: what was awaited was polled %d times of the %d that it stayed", i, p.Polls, leaving)
		}
	}
}

// TestSamplerHearsLateAnswers tests that a handler whose answers are always late still decides the
// length of rounds. Otherwise rounds would have the length for an unused GPU forever.
func TestSamplerHearsLateAnswers(t *testing.T) {
	src, rec := &square{epoch: time.Now()}, newRecorder()
	rec.plan = func(*Phase) Plan {
		<-time.After(5 * AnswerTimeout)
		return Plan{Load: Load{Active: 3}}
	}
	s, err := NewSampler([]SampledGPU{{Name: "0", Source: src, Handler: rec}}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watchFor(t, s, rec, 4)
	if got := s.gpus[0].load.Active; got != 3 {
		t.Errorf("rounds are for %d guests, want 3", got)
	}
}

// TestSamplerWatchesOn tests that, after a verdict that changed which guests run, the sampler
// continues to poll for as long as its handler wants.
func TestSamplerWatchesOn(t *testing.T) {
	const on = 100 * time.Millisecond // longer than a busy machine keeps the thread from polling
	src, rec := &square{epoch: time.Now(), still: true}, newRecorder()
	rec.plan = func(*Phase) Plan { return Plan{Load: Load{Active: 1}, WatchOn: on} }
	config := Config{Poll: 100 * time.Microsecond, Quiet: time.Millisecond, Full: true} // so that it waits for the answer
	s, err := NewSampler([]SampledGPU{{Name: "0", Source: src, Handler: rec, Config: config}}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watchFor(t, s, rec, 5)
	contiguous(t, rec)
	for i, p := range rec.polled[1 : len(rec.polled)-1] { // the last may have been cut short
		if p.Length() < on {
			t.Errorf("phase %d: watched for %v, want %v at least", i, p.Length(), on)
		}
	}
}

// TestSamplerNotify tests that an added channel ends the quiet phase, however long it would be.
func TestSamplerNotify(t *testing.T) {
	src, rec := &square{epoch: time.Now()}, newRecorder()
	config := Config{Poll: time.Microsecond, Quiet: 20 * time.Millisecond, Round: -1, Jitter: -1, Piece: -1}
	s, err := NewSampler([]SampledGPU{{Name: "0", Source: src, Handler: rec, Config: config}}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rec.plan = func(*Phase) Plan { s.Notify(0); return Plan{} }
	watchFor(t, s, rec, 5)
	contiguous(t, rec)
	for i := range rec.quiets {
		if q := &rec.quiets[i]; q.Length() < 4*time.Millisecond {
			t.Errorf("quiet phase %d was cut to %v: notifications may not take it below a quarter", i, q.Length())
		}
	}
}

// TestSamplerNotifyWakes tests that an added channel wakes the polling thread, whether or not the
// GPU was used lately, and ends the round of its GPU before that of another GPU with a round of the
// same length.
func TestSamplerNotifyWakes(t *testing.T) {
	for _, active := range []int{0, 1} {
		t.Run(fmt.Sprint(active), func(t *testing.T) {
			t.Parallel()
			var gpus []SampledGPU
			told := make(chan int, 1000)
			for i := range 2 {
				rec := newRecorder()
				rec.plan = func(*Phase) Plan {
					told <- i
					return Plan{Load: Load{Active: active}}
				}
				// The second GPU's first round begins in the middle of the first one's.
				gpus = append(gpus, SampledGPU{Name: "x", Source: &square{epoch: time.Now()}, Handler: rec,
					Config: Config{Poll: time.Microsecond, Quiet: time.Second, Round: -1, Jitter: -1, Piece: -1}})
			}
			s, err := NewSampler(gpus, SamplerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			first := <-told
			asleep := time.AfterFunc(10*time.Millisecond, func() { s.Notify(0) })
			second := <-told
			asleep.Stop()
			if first != 0 || second != 0 {
				t.Errorf("polled GPU %d and then GPU %d, want GPU 0 twice: it had a channel come", first, second)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSamplerNotifyWakesOnce tests that the thread is woken once a round, however many channels are
// added.
func TestSamplerNotifyWakesOnce(t *testing.T) {
	s, err := NewSampler([]SampledGPU{{Name: "0", Source: &square{epoch: time.Now()}, Handler: newRecorder()}}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.Notify(0)
	}
	if got := s.wake.Load(); got != 1 {
		t.Errorf("woken %d times, want once", got)
	}
}

// entries is a live source whose engine is busy by its busy bit, but not by the entry of the
// channel on it. It reads the entry only when told to.
type entries struct {
	epoch time.Time
	read  bool
}

func (e *entries) ReadEntries(yes bool) { e.read = yes }

func (e *entries) Sample() (Status, error) {
	st := Status{Clock: time.Since(e.epoch), Valid: true, Group: 1, Busy: true}
	if e.read {
		st.Entry = EntryIdle
	}
	return st, nil
}

// TestSamplerReadsEntries tests that the source is told to read the channel's entry if that
// determines whether the engine is idle.
func TestSamplerReadsEntries(t *testing.T) {
	for _, c := range []struct {
		mode           IdleMode
		busy, compared bool
	}{{IdleByBusy, true, false}, {IdleByEntry, false, false}, {IdleCompared, true, true}} {
		rec := newRecorder()
		s, err := NewSampler([]SampledGPU{{Name: "0", Source: &entries{epoch: time.Now()}, Handler: rec,
			Config: Config{Poll: 300 * time.Microsecond, Quiet: time.Millisecond, Idle: c.mode}}}, SamplerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watchFor(t, s, rec, 1)
		p := &rec.polled[0]
		if busy := p.Busy() > 0; busy != c.busy || busy == (p.Idle > 0) || (p.BusyOnly > 0) != c.compared {
			t.Errorf("idle by %v: %v busy, %v idle, %v by the busy bit only", c.mode, p.Busy(), p.Idle, p.BusyOnly)
		}
	}
}

// TestSamplerSeveralGPUs tests that a GPU that can no longer be read does not stop the sampling of
// the others, and that the last one ends the sampler.
func TestSamplerSeveralGPUs(t *testing.T) {
	epoch := time.Now()
	var gpus []SampledGPU
	var recs []*recorder
	var sources []*square
	for range 3 {
		src, rec := &square{epoch: epoch}, newRecorder()
		sources, recs = append(sources, src), append(recs, rec)
		gpus = append(gpus, SampledGPU{Name: "x", Source: src, Handler: rec, Config: Config{Poll: 100 * time.Microsecond, Quiet: 500 * time.Microsecond, Piece: -1}})
	}
	s, err := NewSampler(gpus, SamplerOptions{Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	for range 10 {
		for _, rec := range recs {
			<-rec.told
		}
	}
	sources[1].fail.Store(true)
	for range recs[1].told { // until it failed
	}
	for range 10 {
		<-recs[0].told
		<-recs[2].told
	}
	sources[0].fail.Store(true)
	sources[2].fail.Store(true)
	if err := <-done; !errors.Is(err, errFellOff) {
		t.Errorf("Run: %v, want %v", err, errFellOff)
	}
	// Exactly one GPU is in its polling phase at a time.
	for i, a := range recs {
		contiguous(t, a)
		if !errors.Is(a.failure, errFellOff) {
			t.Errorf("handler %d was told %v", i, a.failure)
		}
		for _, b := range recs[i+1:] {
			for j := range a.polled {
				for k := range b.polled {
					if a.polled[j].Start < b.polled[k].End && b.polled[k].Start < a.polled[j].End {
						t.Errorf("two GPUs polled at the same time: %v-%v and %v-%v",
							a.polled[j].Start, a.polled[j].End, b.polled[k].Start, b.polled[k].End)
					}
				}
			}
		}
	}
}

func TestNewSamplerRefuses(t *testing.T) {
	ok := SampledGPU{Name: "0", Source: &square{}, Handler: newRecorder()}
	full := ok
	full.Config.Full = true
	bad := ok
	bad.Config.Jitter = 2
	for name, gpus := range map[string][]SampledGPU{
		"none":               nil,
		"no source":          {{Name: "0", Handler: newRecorder()}},
		"full beside others": {ok, full},
		"bad configuration":  {bad},
	} {
		if _, err := NewSampler(gpus, SamplerOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRealtimeShare(t *testing.T) {
	tests := []struct {
		name            string
		runtime, period string
		want            float64
		wantErr         bool
	}{
		{name: "as Linux comes", runtime: "950000\n", period: "1000000\n", want: 0.95},
		{name: "unlimited", runtime: "-1\n", period: "1000000\n", want: 1},
		{name: "no such limit", want: 1},
		{name: "garbage", runtime: "many", period: "1000000", wantErr: true},
		{name: "no period", runtime: "950000", wantErr: true},
		{name: "zero period", runtime: "950000", period: "0", wantErr: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "sys/kernel")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"sched_rt_runtime_us": test.runtime, "sched_rt_period_us": test.period} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := realtimeShare(root)
			if (err != nil) != test.wantErr || got != test.want {
				t.Errorf("share %v, error %v; want %v, error %v", got, err, test.want, test.wantErr)
			}
		})
	}
}

// TestYielderStaysBelowTheLimit tests that a thread that yields when told to never reaches the
// kernel's limit, whatever else it sleeps for.
func TestYielderStaysBelowTheLimit(t *testing.T) {
	const share = 0.95
	for _, nap := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
		y := newYielder(share)
		y.slept(0, 0)
		var now time.Duration
		ran := make([]time.Duration, 10) // per second
		for i := 0; now < 10*time.Second; i++ {
			const step = 10 * time.Microsecond
			ran[now/time.Second] += step
			now += step
			if y.due(now) {
				now += y.pause
				y.slept(now, y.pause)
			}
			if nap > 0 && i%1000 == 0 {
				now += nap
				y.slept(now, nap)
			}
		}
		for second, d := range ran {
			if float64(d) > share*float64(time.Second) {
				t.Errorf("naps of %v: ran %v of second %d", nap, d, second)
			}
		}
	}
	y := newYielder(1)
	if y.slept(0, 0); y.due(time.Hour) {
		t.Error("yields although the kernel has no limit")
	}
}

func TestRaisePriority(t *testing.T) {
	result := make(chan Priority)
	for level, impossible := range map[int]bool{1: false, 100_000: true} {
		go func() {
			runtime.LockOSThread() // and never unlocked, so that the thread ends with its priority
			result <- raisePriority(level)
		}()
		if p := <-result; !p.Realtime && p.Reason == "" || impossible && p.Realtime {
			t.Errorf("level %d: %+v", level, p)
		}
	}
}
