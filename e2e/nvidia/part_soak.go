package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"vgpud/e2e/nvidia/tenant"
)

// seatSpec describes a place in the soak that guests of one kind occupy in turn.
type seatSpec struct {
	name   string
	kernel time.Duration
	depth  int
	blocks bool          // its kernels have many short blocks, and can be evicted
	urgent bool          // it has a priority
	pause  time.Duration // the least pause after each kernel; the longest is twice as long
	may    []action
}

// anything lists all actions. A guest that rarely works is never suspended.
var (
	anything = []action{reweighed, suspended, left, guestKilled, deviceKilled, executorKilled, strayed, stuck}
	rarely   = []action{reweighed, left, guestKilled, deviceKilled, executorKilled, strayed}
)

// soakSeats are the seats of the well-behaved guests. The hostile guest has a sixth.
var soakSeats = []seatSpec{
	{name: "batch", kernel: batchLength, depth: batchDepth, blocks: true, may: anything},
	{name: "urgent", kernel: 100 * time.Microsecond, depth: 1, urgent: true, pause: 20 * time.Millisecond, may: rarely},
	{name: "short", kernel: 400 * time.Microsecond, depth: 16, may: anything},
	{name: "middling", kernel: time.Millisecond, depth: 8, may: anything},
	{name: "long", kernel: 5 * time.Millisecond, depth: 4, may: anything},
}

// soakTask is the duration of a block of the kernels that can be evicted. Blocks that start only to
// find that they must exit take time, too, which counts neither as work nor as idle time. So these
// kernels have fewer blocks than those of part urgent.
const soakTask = 100 * time.Microsecond

// usualSoak is the duration of a soak unless another is asked for.
const usualSoak = 8 * time.Minute

// soakCalibrates is how much longer the part may take than the soak itself. soakReports is the
// interval between two lines of progress.
const (
	soakCalibrates = 40 * time.Second
	soakReports    = 15 * time.Second
)

// soaked is a soak under way.
type soaked struct {
	*bench
	plan      plan
	begin     time.Time
	end       time.Time // nothing new starts after this time
	seats     []seatAt
	testbedMu sync.Mutex // guards the testbed, which only one goroutine may use at a time

	mu     sync.Mutex // guards the fields below, and progress
	policy string
	saw    soakFound
}

// seatAt is a seat with its calibration and its results.
type seatAt struct {
	seatSpec
	job   tenant.Job
	as    *tenant.Form
	alone time.Duration // a kernel's length alone, at first measured before the soak; in the end, before and after it
	sum   counted
}

// counted holds a seat's counts, without the times in which an event ended the guest's kernels.
type counted struct {
	kernels   int
	accounted time.Duration
	bouts     int
	// apart is the GPU time that was accounted to guests while they were killed or had faults.
	apart time.Duration
}

// soakFound holds the results so far.
type soakFound struct {
	lost        []string // descriptions of what was lost or wrong
	done        map[string]int
	failed      map[string]int
	why         []string      // why events failed
	standstill  standstill    // the longest
	urgent      time.Duration // the longest of the urgent guests under hpf
	timeline    []happening
	suspensions uint64
	evictions   uint64
	evicting    float64  // the total duration of the evictions, in seconds
	xids        []string // the Xid errors that the driver reported
}

// soak lets guests come and go, fault and misbehave for the duration that was asked for.
func soak(ctx context.Context, b *bench) error {
	long := b.soak
	if b.tiny {
		long = min(long, tinySoak)
	}
	s := &soaked{bench: b, policy: "dfq", saw: soakFound{done: make(map[string]int), failed: make(map[string]int)}}
	var may [][]action
	for _, seat := range soakSeats {
		may = append(may, seat.may)
		s.seats = append(s.seats, seatAt{seatSpec: seat})
	}
	s.plan = planned(b.seed, long, may)
	s.say("seed %d, %v: %v", b.seed, long, &s.plan)
	if err := s.setPolicy(ctx, "dfq"); err != nil {
		return err
	}
	fresh, err := s.footprint(ctx)
	if err != nil {
		return fmt.Errorf("before the first guest: %w", err)
	}
	if err := s.calibrate(ctx); err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	before, err := s.emptied(ctx, &fresh)
	if err != nil {
		return fmt.Errorf("before the soak: %w", err)
	}
	if before.goroutines, err = s.goroutines(ctx); err != nil {
		return err
	}
	if err := s.startDaemon(ctx); err != nil {
		return fmt.Errorf("start the daemon again: %w", err)
	}
	s.say("before: %v", &before)
	took, err := s.run(ctx, long)
	if err != nil {
		return err
	}
	if err := s.setPolicy(ctx, "dfq"); err != nil {
		return err
	}
	after, err := s.emptied(ctx, &before)
	if err != nil {
		return fmt.Errorf("after the soak: %w", err)
	}
	s.say("after:  %v", &after)
	again, err := s.calibrateAgain(ctx)
	if err != nil {
		return fmt.Errorf("calibrate again: %w", err)
	}
	xids, err := s.xids(ctx)
	if err != nil {
		return err
	}
	for _, x := range slices.Sorted(maps.Keys(xids)) {
		s.saw.xids = append(s.saw.xids, fmt.Sprintf("%d × Xid %d", xids[x].Count, x))
	}
	if after.goroutines, err = s.goroutines(ctx); err != nil {
		return err
	}
	s.report(took, again, &fresh, &before, &after)
	return nil
}

// tinySoak is the longest soak that does only the minimum of everything.
const tinySoak = 8 * time.Second

// calibrate measures how long each seat's kernels take alone.
func (s *soaked) calibrate(ctx context.Context) error {
	times := []time.Duration{soakTask}
	for _, seat := range s.seats[1:] {
		times = append(times, seat.kernel)
	}
	scaled, err := s.scale(ctx, times...)
	if err != nil {
		return err
	}
	for i := range s.seats {
		spin := s.full(scaled.iterations[i])
		if s.seats[i].blocks {
			spin.Blocks *= int(s.seats[i].kernel / soakTask)
		}
		s.seats[i].job = tenant.Job{Tally: &spin}
	}
	alone, err := s.lengths(ctx)
	for i := range alone {
		s.seats[i].alone = alone[i]
		s.say("a kernel of %s: %v alone", s.seats[i].name, alone[i])
	}
	return err
}

// lengths measures how long the seats' kernels take alone. Kernels that can be evicted are measured
// through a guest, in the form that its tuner chooses, which lengths records. The others are
// measured by a program of the host.
func (s *soaked) lengths(ctx context.Context) (alone []time.Duration, err error) {
	alone = make([]time.Duration, len(s.seats))
	err = s.solo(ctx, func(m *member) error {
		for i := range s.seats {
			if s.seats[i].blocks {
				continue
			}
			j, err := m.load(ctx, s.seats[i].job)
			if err != nil {
				return err
			}
			if alone[i], _, err = s.lengthOf(ctx, m, j, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range s.seats {
		seat := &s.seats[i]
		if !seat.blocks {
			continue
		}
		m, err := s.guest(ctx, tenant.Setup{Name: "calibrates", Preempt: true})
		if err != nil {
			return nil, err
		}
		j := 0
		if seat.as == nil {
			var form *tenant.Form
			if j, form, err = s.tuned(ctx, m, seat.job); err != nil {
				return nil, err
			}
			s.say("%s goes in form %d, group %d (%s)", seat.name, form.Form, form.Group, form.Why)
			if seat.as = form; s.kind == "soft" || form.Form == 0 {
				seat.as = softForm // the original could never be evicted
			}
		} else if j, err = m.load(ctx, seat.job); err != nil {
			return nil, err
		}
		if alone[i], _, err = s.lengthOf(ctx, m, j, seat.as); err != nil {
			return nil, err
		}
		if err := s.leave(ctx, m); err != nil {
			return nil, err
		}
	}
	return alone, nil
}

// calibrateAgain replaces the kernels' lengths by those measured before and after the soak
// together. It returns the greatest relative difference between the two.
func (s *soaked) calibrateAgain(ctx context.Context) (differ float64, err error) {
	again, err := s.lengths(ctx)
	for i := range again {
		a := &s.seats[i].alone
		differ = max(differ, math.Abs(float64(again[i])/float64(max(*a, 1))-1))
		*a = (*a + again[i]) / 2
	}
	return differ, err
}

// run lets all seats work for the given duration, and returns how long they did.
func (s *soaked) run(ctx context.Context, long time.Duration) (time.Duration, error) {
	s.begin = time.Now()
	s.end = s.begin.Add(long)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(s.seats)+2)
	var seats, beside sync.WaitGroup
	for i := range s.seats {
		seats.Go(func() {
			if errs[i] = s.occupy(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	seats.Go(func() { errs[len(s.seats)] = s.misbehaves(ctx) })
	done := make(chan struct{})
	beside.Go(func() { errs[len(s.seats)+1] = s.runUrgentPeriods(ctx) })
	beside.Go(func() { s.progress(done) })
	seats.Wait()
	took := time.Since(s.begin)
	close(done)
	cancel() // ends the changes of the policy
	beside.Wait()
	return took, errors.Join(errs...)
}

// runUrgentPeriods changes the policy as planned.
func (s *soaked) runUrgentPeriods(ctx context.Context) error {
	for _, h := range s.plan.urgentPeriods {
		for _, c := range []struct {
			at     time.Duration
			policy string
		}{{h.from, "hpf"}, {h.to, "dfq"}} {
			if rest(ctx, time.Until(s.begin.Add(c.at))) != nil {
				return nil // the soak has ended
			}
			// This is set before the policy changes: otherwise a guest would count a wait that hpf
			// causes as a standstill.
			if c.policy == "hpf" {
				s.note(func() { s.policy = c.policy })
			}
			ends := s.happens("the daemon", "policy "+c.policy)
			if err := s.setPolicy(ctx, c.policy); err != nil && ctx.Err() == nil {
				return err
			}
			ends()
			s.note(func() { s.policy = c.policy; s.saw.done["policy "+c.policy]++ })
		}
	}
	return nil
}

// note calls change with the lock of the results held.
func (s *soaked) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// inUrgentPeriod reports whether the policy is hpf or is about to be.
func (s *soaked) inUrgentPeriod() (yes bool) {
	s.note(func() { yes = s.policy == "hpf" })
	return yes
}

// over reports whether nothing new may start.
func (s *soaked) over() bool { return !time.Now().Before(s.end) }

// progress prints the state of the soak at intervals.
func (s *soaked) progress(done <-chan struct{}) {
	t := time.NewTicker(soakReports)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			s.note(func() {
				kernels, bouts := 0, 0
				for i := range s.seats {
					kernels, bouts = kernels+s.seats[i].sum.kernels, bouts+s.seats[i].sum.bouts
				}
				did, failed := 0, 0
				for what, n := range s.saw.done {
					did, failed = did+n, failed+s.saw.failed[what]
				}
				s.say("%.0f s: %s, %d kernels in %d bouts, %d lost or wrong; %d events, %d not recovered; longest standstill %v", time.Since(s.begin).Seconds(),
					s.policy, kernels, bouts, len(s.saw.lost), did, failed, s.saw.standstill.took.Round(time.Millisecond))
			})
		}
	}
}

// did records an event. If err is not nil, the event was not recovered from.
func (s *soaked) did(who, what string, err error) {
	s.note(func() {
		s.saw.done[what]++
		if err == nil {
			return
		}
		s.saw.failed[what]++
		s.saw.why = append(s.saw.why, fmt.Sprintf("%.0f s: %s: %s: %s", time.Since(s.begin).Seconds(), who, what, first(err)))
		s.say("%s: %s: %v", who, what, err)
	})
}

// errorOf returns the difference between the accounted GPU time and the number of kernels times
// their length alone.
func (seat *seatAt) errorOf() time.Duration {
	return seat.sum.accounted - time.Duration(seat.sum.kernels)*seat.alone
}

// report makes the rows.
func (s *soaked) report(took time.Duration, differ float64, fresh, before, after *footprint) {
	f := &s.saw
	var accounted, off, apart time.Duration
	kernels, bouts := 0, 0
	seats := detail("kernels", "their length alone, µs", "accounted, s", "accounted − kernels × length, of the window", "bouts", "accounted apart, s")
	worst := 0.0
	for i := range s.seats {
		seat := &s.seats[i]
		accounted, off, apart = accounted+seat.sum.accounted, off+seat.errorOf(), apart+seat.sum.apart
		kernels, bouts = kernels+seat.sum.kernels, bouts+seat.sum.bouts
		part := float64(seat.errorOf()) / float64(took)
		worst = max(worst, math.Abs(part))
		seats.Add(seat.name, float64(seat.sum.kernels), float64(seat.alone)/1e3, seat.sum.accounted.Seconds(), part, float64(seat.sum.bouts), seat.sum.apart.Seconds())
	}
	how := fmt.Sprintf("%.0f s, seed %d, 6 guests with the daemon as it is by default, under dfq, and from time to time hpf: one with kernels of 20 ms that leave when told, one urgent, three with kernels of 0.4, 1 and 5 ms, and one that is hostile; %v", took.Seconds(), s.seed, &s.plan)
	lost := s.rowOf("soak_lost", float64(len(f.lost)), []float64{float64(len(f.lost))}, how+". Each bout of a guest ends with a look at words that all its kernels since the begin of the bout added to: whether every block of each ran, once, and computed what is right. Kernels of guests that were killed or had faults at the time are counted apart. "+listed(f.lost))
	lost.Baseline["kernels"], lost.Baseline["bouts"] = float64(kernels), float64(bouts)
	a := s.rowOf("soak_accounting_error", math.Abs(float64(off))/float64(took), []float64{math.Abs(float64(off)) / float64(took)}, "|accounted − kernels × their length alone| / window, summed over all guests but the hostile one, while nothing was done to them that ends kernels; lengths alone are the mean of before the soak and after it. The same soak")
	a.Baseline["signed"], a.Baseline["worst_seat"], a.Baseline["lengths_differ"] = float64(off)/float64(took), worst, differ
	a.Baseline["accounted_seconds"], a.Baseline["accounted_apart_seconds"] = accounted.Seconds(), apart.Seconds()
	a.Detail = seats
	bytes, things := before.kept(after)
	mib := bytes / (1 << 20)
	memory := s.rowOf("soak_memory_kept", mib, []float64{mib}, fmt.Sprintf("the GPU's memory that is free to a program of the host, before the soak and after it, without guests. Before any guest: %v; before the soak: %v; after it: %v", fresh, before, after))
	memory.Baseline["since_before_any_guest_mib"] = (float64(fresh.free) - float64(after.free)) / (1 << 20)
	if before.used > 0 {
		memory.Baseline["nvml_used_more_mib"] = (float64(after.used) - float64(before.used)) / (1 << 20)
	}
	kept := s.rowOf("soak_kept", float64(things), []float64{float64(things)}, fmt.Sprintf("descriptors, processes and goroutines of the daemon, guests, and contexts that it holds to be off the GPU: those that are there after the soak, and were not before it. More descriptors: %q", before.opened(after)))
	kept.Baseline["descriptors_before"], kept.Baseline["descriptors_after"] = float64(before.descriptors()), float64(after.descriptors())
	kept.Baseline["goroutines_before"], kept.Baseline["goroutines_after"] = float64(before.goroutines), float64(after.goroutines)
	kept.Baseline["threads_before"], kept.Baseline["threads_after"] = float64(before.threads), float64(after.threads)
	kept.Baseline["resident_mib_before"], kept.Baseline["resident_mib_after"] = float64(before.resident)/(1<<20), float64(after.resident)/(1<<20)
	events := detail("times", "not recovered")
	did, failed := 0, 0
	for _, what := range slices.Sorted(maps.Keys(f.done)) {
		did, failed = did+f.done[what], failed+f.failed[what]
		events.Add(what, float64(f.done[what]), float64(f.failed[what]))
	}
	recovered := s.rowOf("soak_not_recovered", float64(failed), []float64{float64(failed)}, fmt.Sprintf("of %d events, those after which the guest did not work as it should, or that did not come to pass. %s. The driver reported %q", did, listed(f.why), f.xids))
	recovered.Baseline["events"], recovered.Baseline["suspensions"], recovered.Baseline["evictions"] = float64(did), float64(f.suspensions), float64(f.evictions)
	recovered.Baseline["eviction_seconds"] = f.evicting
	recovered.Detail = events
	ms := millis(f.standstill.took)
	standing := fmt.Sprintf("%s, from %.1f s on", f.standstill.who, f.standstill.from.Seconds())
	still := s.rowOf("soak_standstill_ms", ms, []float64{ms}, "the longest time in which a guest with work had no kernel end, while nothing was done to it under dfq, which promises it a share; hpf promises the urgent one that it is first. Longest: "+standing+". The table has the other guests' events then, and in the second before")
	still.Baseline["urgent_under_hpf_ms"] = millis(f.urgent)
	still.Baseline["kernel_time_limit_ms"] = millis(kernelTimeLimit)
	still.Detail = f.during(f.standstill)
	s.add(lost, a, memory, kept, recovered, still)
	for _, what := range append(f.lost, f.why...) {
		s.say("%s", what)
	}
	for _, l := range events.Lines {
		s.say("%s: %v times, %v not recovered", l.Name, l.Values[0], l.Values[1])
	}
	s.say("%d suspensions, %d evictions in %.3f s; more descriptors: %q; goroutines: %d, %d", f.suspensions, f.evictions, f.evicting, before.opened(after), before.goroutines, after.goroutines)
	s.say("the driver reported %q", f.xids)
	for _, l := range seats.Lines {
		s.say("%s: %v", l.Name, l.Values)
	}
	s.say("accounted %.3f s, of the window %+.5f; worst seat %.5f; %s", accounted.Seconds(), float64(off)/float64(took), worst, standing)
}

// detailed limits how many findings a row lists.
const detailed = 20

// listed returns the findings as one sentence.
func listed(all []string) string {
	if len(all) == 0 {
		return "There were none"
	}
	s := "They are"
	for i, what := range all {
		if i == detailed {
			return fmt.Sprintf("%s; and %d more", s, len(all)-i)
		}
		s += "; " + what
	}
	return s
}
