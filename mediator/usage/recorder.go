package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/mediator/events"
)

// Options configure a recorder. Path, Clock, Log and Samples must be set.
type Options struct {
	// Path is the database. Its directory is made if there is none.
	Path string
	// Interval is the length of the finest rows; it divides an hour into whole seconds. Zero is
	// DefaultInterval.
	Interval time.Duration
	Keep     Keep
	// MaxBytes bounds the database. Before it would be larger, the oldest of the finest rows are
	// removed. Zero is DefaultMaxBytes.
	MaxBytes int64
	Clock    clock.Clock
	// Wall returns the wall time; nil is time.Now.
	Wall func() time.Time
	// Boot names the present run of the host's kernel, and SinceBoot returns the time since it began.
	Boot      string
	SinceBoot func() time.Duration
	Log       *slog.Logger
	// Samples returns a sample of each guest.
	Samples func() []Sample
	// Fault, if not nil, is called before each transaction, and its error is the transaction's: it
	// simulates a full, read-only or broken disk.
	Fault func() error

	unsynced bool // see storeOptions
}

// CheckInterval returns what is wrong with the length of intervals.
func CheckInterval(d time.Duration) error {
	if d < 10*time.Second || d > time.Hour || d%time.Second != 0 || time.Hour%d != 0 {
		return fmt.Errorf("interval %v: want whole seconds that divide an hour, from 10s to 1h, such as 1m", d)
	}
	return nil
}

const (
	// Round is how often guests are sampled, and what they used is written.
	Round = 5 * time.Second
	// freshFor is how old what was written may be when a query is answered.
	freshFor = time.Second
	// reopenEvery is how often it is tried to open a database that can't be opened.
	reopenEvery = 30 * time.Second
	// tidyEvery is how often rows are removed that are too old.
	tidyEvery = 10 * time.Minute
	// markAge is how long the mark of a guest is kept that nobody knows any more.
	markAge = 31 * 24 * time.Hour
)

// maxEnded bounds the guests that ended since the last round, which may wait for a database that
// can't be opened.
const maxEnded = 10_000

// Recorder keeps the record. Open makes it, and Run records until its context ends. Its methods may
// be called from any goroutine.
type Recorder struct {
	o    Options
	kick chan struct{}

	// writing is held while a round is made, and guards what follows it.
	writing sync.Mutex
	sending *batch // what may have been written
	// tried is when it was last tried to open the database, tidied when rows were last removed.
	tried, tidied time.Duration
	clock         recordClock
	closed        bool

	mu      sync.Mutex
	store   *store // nil while the database can't be opened
	meter   meter
	backlog backlog
	ended   []Sample // since the last round
	sampled time.Duration
	problem string
	// quarantined is what became of a corrupt database since the daemon's start.
	quarantined string
}

// Open opens the record. A database that can't be opened is tried again later: Problem says why.
func Open(o Options) *Recorder {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.SinceBoot == nil {
		o.SinceBoot = o.Clock.Now
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	r := &Recorder{o: o, kick: make(chan struct{}, 1)}
	r.writing.Lock()
	defer r.writing.Unlock()
	r.sampled = o.Clock.Now()
	r.clock = startRecordClock(time.Time{}, o.Wall(), r.sampled)
	r.reopen()
	return r
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.wait(ctx)
		r.round()
	}
}

// wait waits for the next round, which comes early if a guest ends.
func (r *Recorder) wait(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var kicked sync.WaitGroup
	defer kicked.Wait()
	defer cancel()
	kicked.Go(func() {
		select {
		case <-r.kick:
			cancel()
		case <-ctx.Done():
		}
	})
	_ = clock.Tick(ctx, r.o.Clock, Round) // its error says that the round is early
}

// Close records what guests have used up to now, and closes the database. Nothing may be recorded
// any more, but the recorder's methods may be called.
func (r *Recorder) Close() error {
	r.round()
	r.writing.Lock()
	defer r.writing.Unlock()
	r.closed = true
	s := r.swapStore(nil)
	if s == nil {
		return nil
	}
	return s.close()
}

// swapStore changes the store, and returns the one before.
func (r *Recorder) swapStore(s *store) *store {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.store
	r.store = s
	return old
}

// Ended records the last sample of a guest. The daemon must give no sample of the guest to a later
// round. Ended returns before the usage is written, which is soon.
func (r *Recorder) Ended(s Sample) {
	r.mu.Lock()
	if len(r.ended) < maxEnded {
		r.ended = append(r.ended, s)
	}
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// round samples all guests and writes what they used.
func (r *Recorder) round() {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.closed {
		return
	}
	if r.current() == nil {
		r.reopen()
	}
	samples := r.o.Samples()
	now, wall := r.o.Clock.Now(), r.o.Wall()
	at, jumped := r.clock.now(wall, now)
	if jumped {
		r.o.Log.Warn("the host's clock has jumped by more than a day: usage is recorded at the time by the old clock until the new one has run for a day", events.Kind(events.UsageProblem),
			"now", wall.UTC(), "recorded_at", at.UTC())
	}
	r.collect(samples, now, at)
	r.write(at)
	if r.current() != nil && (r.tidied == 0 || now-r.tidied >= tidyEvery) {
		r.tidied = max(now, 1)
		r.tidy(at, samples)
	}
}

// collect adds samples to the backlog. Before the marks of an earlier daemon are known it does
// nothing: the guests' sums are there the next time, too.
func (r *Recorder) collect(samples []Sample, now time.Duration, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.meter.restored() {
		return
	}
	// Use since the last round belongs to the middle of that time.
	at = at.Add(-min(max(now-r.sampled, 0), Round) / 2)
	over := make(map[string]bool, len(r.ended))
	for i := range r.ended {
		s := &r.ended[i]
		over[s.Life] = true
		r.take(s, now, at)
		r.meter.forget(s.Life)
		r.backlog.end(s.Life)
	}
	r.ended = nil
	for i := range samples {
		if !over[samples[i].Life] { // else the sample is older than the last one
			r.take(&samples[i], now, at)
		}
	}
	r.sampled = now
}

// take adds a sample to the backlog.
//
// Preconditions: r.mu is held, and the marks are known.
func (r *Recorder) take(s *Sample, now time.Duration, at time.Time) {
	if !r.meter.known(s.Life) && r.store != nil && !r.store.existedAt(s.Began) {
		// The guest's use before is in a database that is gone, or was never recorded.
		r.backlog.mark(r.meter.skip(now, s))
		return
	}
	before, known := r.meter.mark(s.Life)
	used, mark := r.meter.observe(now, s)
	if known && used.zero() && mark == before {
		return
	}
	r.backlog.add(at.UTC().Truncate(r.o.Interval), s.Subject.clean(), used, mark)
}

func (r *Recorder) current() *store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// write writes the backlog.
//
// Preconditions: r.writing is held.
func (r *Recorder) write(now time.Time) {
	for {
		s := r.current()
		if s == nil {
			return
		}
		r.mu.Lock()
		if r.sending == nil && !r.backlog.empty() {
			r.sending = r.backlog.take(s.number + 1)
		}
		r.mu.Unlock()
		if r.sending == nil {
			return
		}
		err := r.try(func() error { return s.commit(context.Background(), r.sending, now) })
		if err != nil {
			r.failed(s, err)
			return
		}
		r.sending = nil
		r.setProblem("")
	}
}

// try calls f unless a fault is simulated.
func (r *Recorder) try(f func() error) error {
	if r.o.Fault != nil {
		if err := r.o.Fault(); err != nil {
			return err
		}
	}
	return f()
}

// failed does what an error of the store calls for.
//
// Preconditions: r.writing is held.
func (r *Recorder) failed(s *store, err error) {
	switch {
	case isCorrupt(err):
		r.replaceCorrupt(s, err)
	case isFull(err) && s.full():
		what, serr := s.shrink(context.Background())
		if serr != nil {
			r.setProblem(fmt.Sprintf("usage is not recorded: %s is as large as it may be: %v", r.o.Path, serr))
			return
		}
		r.o.Log.Warn("the usage record is as large as it may be, and its oldest rows are removed", events.Kind(events.UsageProblem), "path", r.o.Path, "removed", what)
	default:
		r.setProblem(fmt.Sprintf("usage is not recorded: %s: %v; it is kept in memory as far as there is room: %s", r.o.Path, err, advice(err)))
	}
}

// advice says what an operator can do about an error.
func advice(err error) string {
	switch {
	case isFull(err):
		return "make room on its disk"
	case isReadOnly(err):
		return "make its file system writable"
	default:
		return "check its disk and its directory"
	}
}

// setProblem notes, and logs once, what is wrong; empty is nothing.
func (r *Recorder) setProblem(problem string) {
	r.mu.Lock()
	before := r.problem
	r.problem = problem
	lost := r.backlog.lost
	if problem == "" {
		r.backlog.lost = Sums{}
	}
	r.mu.Unlock()
	switch {
	case problem == before:
	case problem != "":
		r.o.Log.Error("usage record", events.Kind(events.UsageProblem), "problem", problem)
	default:
		r.o.Log.Info("usage is recorded again", events.Kind(events.UsageRecovered), "path", r.o.Path)
		if !lost.zero() {
			r.o.Log.Error("usage that did not fit into memory is lost", events.Kind(events.UsageProblem), "gpu_time", lost.GPUTime(), "kernels", lost.Kernels)
		}
	}
}

// Mark returns up to which sums a guest's usage is recorded, if that is known.
func (r *Recorder) Mark(life string) (Mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meter.mark(life)
}

// Problems returns what is wrong with the record: why nothing is recorded, and that a corrupt
// database was replaced.
func (r *Recorder) Problems() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range []string{r.problem, r.quarantined} {
		if p != "" {
			all = append(all, p)
		}
	}
	return all
}

// reopen opens the database if it was not tried lately.
//
// Preconditions: r.writing is held.
func (r *Recorder) reopen() {
	now := r.o.Clock.Now()
	if r.tried != 0 && now-r.tried < reopenEvery {
		return
	}
	r.tried = max(now, 1)
	s, marks, err := r.open()
	if err != nil && isCorrupt(err) {
		if err = r.quarantine(err); err == nil {
			s, marks, err = r.open()
		}
	}
	if err != nil {
		r.setProblem(fmt.Sprintf("usage is not recorded: open %s: %v; it is tried again: %s", r.o.Path, err, advice(err)))
		return
	}
	r.clock = startRecordClock(s.trusted, r.o.Wall(), now)
	r.mu.Lock()
	r.store = s
	if !r.meter.restored() {
		r.meter.restore(marks)
	} else {
		// The database is a new one, or was out of reach: it has all marks from now on.
		for _, l := range r.meter.lives {
			r.backlog.mark(l.mark)
		}
	}
	r.mu.Unlock()
	r.setProblem("")
}

func (r *Recorder) open() (*store, []Mark, error) {
	var s *store
	var marks []Mark
	err := r.try(func() (err error) {
		s, err = openStore(storeOptions{
			path: r.o.Path, interval: int64(r.o.Interval / time.Second), maxBytes: r.o.MaxBytes, boot: r.o.Boot, now: r.o.SinceBoot(), unsynced: r.o.unsynced,
		})
		if err == nil {
			if marks, err = s.marks(); err != nil {
				err = errors.Join(err, s.close())
			}
		}
		return err
	})
	return s, marks, err
}

// replaceCorrupt puts a new database in the place of a corrupt one.
//
// Preconditions: r.writing is held.
func (r *Recorder) replaceCorrupt(s *store, cause error) {
	r.swapStore(nil)
	if err := s.close(); err != nil {
		r.o.Log.Debug("close a corrupt database", "err", err)
	}
	if err := r.quarantine(cause); err != nil {
		r.setProblem(fmt.Sprintf("usage is not recorded: %s is corrupt (%v), and can't be replaced: %v", r.o.Path, cause, err))
		return
	}
	r.tried = 0
	r.reopen()
}

// quarantine moves a corrupt database away, and says so.
func (r *Recorder) quarantine(cause error) error {
	name, err := quarantine(r.o.Path, r.o.Wall())
	if err != nil {
		return err
	}
	r.o.Log.Error("the usage record was corrupt: it is kept, and a new one is started", events.Kind(events.UsageProblem), "path", r.o.Path, "kept", name, "err", cause)
	r.mu.Lock()
	r.quarantined = fmt.Sprintf("the usage record was corrupt (%v), and a new one was started: look at %s, or restore a backup, and restart the daemon", cause, name)
	r.mu.Unlock()
	return nil
}

// tidy removes what is too old.
//
// Preconditions: r.writing is held.
func (r *Recorder) tidy(now time.Time, samples []Sample) {
	s := r.current()
	live := make(map[string]bool, len(samples))
	for i := range samples {
		live[samples[i].Life] = true
	}
	ctx := context.Background()
	err := r.try(func() error {
		for v := range levels {
			if before, ok := r.o.Keep.horizon(v, now); ok {
				if err := s.remove(ctx, v, before); err != nil {
					return err
				}
			}
		}
		return s.tidy(ctx, func(life string) bool { return live[life] }, now.Add(-markAge), now)
	})
	if err != nil {
		r.failed(s, err)
	}
}

// errNotOpen means that the record can't be read.
var errNotOpen = errors.New("the usage record can't be read")

// Report answers a query, with what guests have used up to now.
func (r *Recorder) Report(ctx context.Context, q Query) (Report, error) {
	step := int64(0)
	if q.By == ByDay {
		step = day
	}
	parts, from, to, err := r.parts(ctx, q, step, q.By != ByDay)
	if err != nil {
		return Report{}, err
	}
	rep := Report{From: from, To: to, By: q.By}
	rep.Rows, rep.Total = group(q.By, parts)
	return rep, nil
}

// GPUTime returns the compute time of the subjects that a query means, as budgets need it.
func (r *Recorder) GPUTime(ctx context.Context, q Query) (time.Duration, error) {
	rep, err := r.Report(ctx, q)
	return rep.Total.GPUTime(), err
}

// Costs returns what a query's guests cost, as a custom cost plugin of OpenCost does, in windows of
// a day or, if hourly, an hour.
func (r *Recorder) Costs(ctx context.Context, q Query, hourly bool, host string, p Price) ([]CostResponse, error) {
	step := int64(day)
	if hourly {
		step = hour
	}
	q.From, q.To = time.Unix(floor(q.From.Unix(), step), 0), time.Unix(ceil(q.To.Unix(), step), 0)
	parts, _, _, err := r.parts(ctx, q, step, true)
	if err != nil {
		return nil, err
	}
	return export(merge(parts), step, host, p), nil
}

// parts returns the sums of a query, and the time that they cover.
func (r *Recorder) parts(ctx context.Context, q Query, step int64, bySubject bool) (parts []part, from, to time.Time, err error) {
	r.mu.Lock()
	stale := r.o.Clock.Now()-r.sampled > freshFor
	r.mu.Unlock()
	if stale {
		r.round()
	}
	s := r.current()
	if s == nil {
		return nil, from, to, fmt.Errorf("%w: %s", errNotOpen, r.o.Path)
	}
	removed, err := s.removed(ctx)
	if err != nil {
		return nil, from, to, r.readFailed(s, err)
	}
	segments := plan(q.From.Unix(), q.To.Unix(), s.o.interval, removed, coarsest(step))
	if len(segments) == 0 {
		return nil, q.From, q.From, nil
	}
	for _, seg := range segments {
		some, err := s.scan(ctx, seg, step, bySubject, q.matches)
		if err != nil {
			return nil, from, to, r.readFailed(s, err)
		}
		parts = append(parts, some...)
	}
	return parts, time.Unix(segments[0].from, 0).UTC(), time.Unix(segments[len(segments)-1].to, 0).UTC(), nil
}

// readFailed returns the error of a query. A corrupt database is replaced.
func (r *Recorder) readFailed(s *store, err error) error {
	if isCorrupt(err) {
		r.writing.Lock()
		if r.current() == s {
			r.replaceCorrupt(s, err)
		}
		r.writing.Unlock()
	}
	return fmt.Errorf("%w: %s: %w", errNotOpen, r.o.Path, err)
}
