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

// Mark returns up to which sums a guest's usage is recorded, if that is known.
func (r *Recorder) Mark(life string) (Mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meter.mark(life)
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
