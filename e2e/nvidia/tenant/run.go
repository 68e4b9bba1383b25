package tenant

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrResults reports that launches have not computed the correct results.
var ErrResults = errors.New("wrong results")

// run repeats a job as the request says.
func (t *tenant) run(ctx context.Context, r *Run) (*Ran, error) {
	j, err := t.job(r.Job)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Pauses must have the requested length: by default the kernel's timer slack adds 50 µs.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timers' slack: %w", err)
	}
	if j.stamps != 0 {
		if err := j.clearStamps(ctx, t.machine); err != nil {
			return nil, err
		}
	}
	if j.tally != nil {
		if err := j.tally.clear(ctx, t.machine); err != nil {
			return nil, err
		}
	}
	w := worker{tenant: t, job: j, steps: slices.Clone(j.steps), depth: max(r.Depth, 1)}
	for i := range w.steps {
		w.steps[i].as = r.As
	}
	if r.Slices > 1 {
		w.steps = sliced(w.steps, r.Slices)
	}
	t.machine.lines(w.depth, max(r.Rounds, 1)*len(w.steps) > w.depth)
	begin := time.Now()
	if r.At != 0 {
		begin = time.Unix(0, r.At)
		nap(time.Until(begin))
	}
	from, to := begin.Add(r.Warm), begin.Add(r.Warm+r.For)
	if r.For > 0 {
		w.until = to.Add(r.After)
	}
	var ran Ran
	if r.Allocate > 0 {
		var beside sync.WaitGroup
		beside.Go(func() { ran.Allocated, ran.Refused = exhaust(ctx, t.machine, r.Allocate) })
		defer beside.Wait()
	}
	for i := 0; ctx.Err() == nil; i++ {
		if r.For == 0 && i == max(r.Count, 1) || w.late() {
			break
		}
		start := time.Now()
		w.ended = w.ended[:0]
		if err := w.iterate(ctx, max(r.Rounds, 1)); err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		end := time.Now()
		ran.All += len(w.ended)
		ran.stood(&w, begin, start)
		if r.For == 0 {
			from, to = begin, end
		}
		ran.count(&w, start, end, from, to)
		pause := r.Pause
		if r.Jitter > 0 {
			pause += rand.N(r.Jitter)
		}
		nap(pause)
	}
	ran.Window = to.Sub(from)
	ran.spanned(&w, to)
	return &ran, t.finish(ctx, j, r, &ran)
}

// exhaust allocates memory until an allocation is refused.
func exhaust(ctx context.Context, m machine, bytes uint64) (allocated uint64, refused string) {
	for {
		if _, err := m.alloc(ctx, bytes); err != nil {
			return allocated, err.Error()
		}
		allocated += bytes
	}
}

// finish reads the results that are known only after a run.
func (t *tenant) finish(ctx context.Context, j *job, r *Run, ran *Ran) error {
	if j.stamps != 0 && ran.All > 0 {
		var err error
		if ran.Stamped, ran.Block, err = j.stamped(ctx, t.machine); err != nil {
			return err
		}
	}
	if r.Check && j.tally != nil {
		if err := j.tally.check(ctx, t.machine, ran.All); err != nil {
			return fmt.Errorf("%s: %w: %w", j.name, ErrResults, err)
		}
	}
	if r.Check && ran.All > 0 {
		return j.check(ctx, t.machine)
	}
	return nil
}

// count adds an iteration.
func (ran *Ran) count(w *worker, start, end, from, to time.Time) {
	for _, l := range w.ended {
		if l.at.Before(from) {
			w.before = l.at
			continue
		}
		if l.at.After(to) {
			continue
		}
		w.last = l.at
		ran.Launches++
		ran.Evictions += l.evictions
		if len(ran.Executed) < Kept {
			ran.Executed = append(ran.Executed, l.end-l.start)
		}
	}
	if !start.Before(from) && !end.After(to) {
		ran.Iterations++
		if len(ran.Turnarounds) < Kept {
			ran.Turnarounds = append(ran.Turnarounds, end.Sub(start))
		}
	}
}

// stood records the longest standstill of an iteration that began at start, of a run that began at
// begin.
func (ran *Ran) stood(w *worker, begin, start time.Time) {
	for _, l := range w.ended {
		if took := l.at.Sub(start); took > ran.Standstill {
			ran.Standstill, ran.StandstillAt = took, start.Sub(begin)
		}
		start = l.at
	}
}

// spanned sets Span. If the rest of the window, up to to, is longer than the span, work has
// stopped, and the time from end to end would only tell how fast it was before.
func (ran *Ran) spanned(w *worker, to time.Time) {
	if w.before.IsZero() || w.last.IsZero() {
		return
	}
	if span := w.last.Sub(w.before); to.Sub(w.last) <= span {
		ran.Span = span
	}
}

// worker executes the iterations of a job.
type worker struct {
	*tenant
	job   *job
	steps []command
	depth int
	until time.Time // nothing new starts after this time; zero means no limit
	ended []ended
	// before and last are the last ends of launches before the window and in it.
	before, last time.Time
}

// ended is a launch that has ended.
type ended struct {
	done
	at time.Time
}

// late reports whether nothing new may start.
func (w *worker) late() bool { return !w.until.IsZero() && !time.Now().Before(w.until) }

// iterate enqueues the job's steps rounds times, depth at a time, and waits for all. At the end of
// the run it stops wherever it is.
func (w *worker) iterate(ctx context.Context, rounds int) error {
	begun, waited := 0, 0
rounds:
	for range rounds {
		if len(w.job.restores) > 0 {
			for ; waited < begun; waited++ {
				if err := w.await(ctx, waited); err != nil {
					return err
				}
			}
		}
		for _, r := range w.job.restores {
			if err := w.machine.copyIn(ctx, r.at, r.bytes); err != nil {
				return err
			}
		}
		for i := range w.steps {
			if begun-waited == w.depth {
				if err := w.await(ctx, waited); err != nil {
					return err
				}
				waited++
			}
			if w.late() {
				break rounds
			}
			if err := w.gate.submit(ctx); err != nil {
				return err
			}
			if err := w.machine.launch(ctx, begun%w.depth, &w.steps[i]); err != nil {
				return err
			}
			begun++
		}
	}
	for ; waited < begun; waited++ {
		if err := w.await(ctx, waited); err != nil {
			return err
		}
	}
	return nil
}

// await waits for the n-th launch of an iteration.
func (w *worker) await(ctx context.Context, n int) error {
	d, err := w.machine.wait(ctx, n%w.depth)
	w.gate.complete()
	if err != nil {
		return err
	}
	w.ended = append(w.ended, ended{d, time.Now()})
	return nil
}

// nap sleeps as precisely as the kernel can.
func nap(d time.Duration) {
	if d <= 0 {
		return
	}
	t := unix.NsecToTimespec(int64(d))
	for {
		err := unix.Nanosleep(&t, &t)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
