package scheduler

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/fairshare/quota"
	"vgpud/gpu"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
)

// Options configure a scheduler. Name, Clock, Log and Policy must be set.
type Options struct {
	Name  string // of the GPU, in the log
	Clock clock.Clock
	Log   *slog.Logger
	// GPU is the GPU as it is open now. A [Loop] sets it itself.
	GPU GPU
	// Policy is a name of [fairshare.Names], made with PolicyOptions.
	Policy        string
	PolicyOptions fairshare.Options
	Control       Control
	// EvictionDeadline is how long a kernel may take to leave the GPU; 0 is no limit.
	EvictionDeadline time.Duration
	BusyWait         BusyWait
}

// GPU is a GPU as it is open and watched now.
type GPU struct {
	Properties gpu.Properties
	// Watch is how the rounds of watching are planned.
	Watch accounting.Config
	// ByExecutors reports whether executors record when they had something on the GPU, because its
	// status alone does not show who used it.
	ByExecutors bool
	// Controllable reports whether contexts can be taken off the GPU and have time slices.
	Controllable bool
}

// Scheduler shares one GPU among guests: it is told what was seen of the GPU, charges the guests,
// asks the policy, and carries out the verdicts. See the package comment for how it is driven.
type Scheduler struct {
	o Options
	// notify, if set, ends the present round early.
	notify func()

	// roster guards guests. A guest's page may be used while it is held.
	roster sync.RWMutex
	guests []*Guest // in order of ID
	lastID fairshare.GuestID

	mu         sync.Mutex
	gpu        GPU
	planner    *accounting.Planner
	policy     fairshare.Policy
	policyName string
	tally      tally
	// spread reports whether polling is in pieces over the quiet time, so that it shows that time
	// as it was, suspended guests' last commands included.
	spread  bool
	load    accounting.Load
	problem string // why the GPU can't be used; empty if it can
	// failed reports whether nothing is decided until the GPU is opened again, stopped whether
	// nothing is decided any more.
	failed, stopped bool
	await           []accounting.GroupID
	state           []fairshare.Guest // one for each guest
	leftUse         []fairshare.Left  // of those that have left
	// suspends reports of each guest whether the newest decision suspends it, and fresh whether it
	// did not do so before.
	suspends, fresh []bool
	shares          shares
	// look says which guests' contexts are looked at in any case.
	look     inTurn
	claim    claim
	launches launches
	// dropSlices leaves time slices to the driver from the next decision on.
	dropSlices bool
	owners     map[accounting.GroupID]*Guest // of the hardware's channel groups
	left       []*Guest                      // with a cap, in the present phase
	removed    []*Guest                      // since the last decision

	// The watcher's goroutine alone uses these. workLook says whose contexts Work looks at in any
	// case. mostRecorded is the largest number of launches that
	// one context recorded since the last round.
	workLook     inTurn
	processes    processes
	mostRecorded int
}

var (
	_ accounting.Handler    = (*Scheduler)(nil)
	_ accounting.Workload   = (*Scheduler)(nil)
	_ accounting.Attributor = (*Scheduler)(nil)
)

// New returns a scheduler without guests.
func New(o Options) (*Scheduler, error) {
	s := &Scheduler{o: o, gpu: o.GPU, planner: accounting.NewPlanner(o.GPU.Watch)}
	s.claim.of = s.claimGroup
	s.launches.setEvictionDeadline(o.EvictionDeadline)
	s.launches.busyWait.BusyWait = o.BusyWait
	return s, s.SetPolicy(o.Policy)
}

// SetGPU tells the scheduler of another way in which the GPU is open or watched.
func (s *Scheduler) SetGPU(g GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpu, s.planner, s.spread = g, accounting.NewPlanner(g.Watch), false
}

// Add begins to share the GPU with a guest. The policy is told of it by Changed.
func (s *Scheduler) Add(g *Guest) {
	s.roster.Lock()
	defer s.roster.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	g.setID(s.lastID)
	s.guests = append(s.guests, g)
	assignNumbers(s.guests)
	g.recent = newRecent(s.o.Clock.Now(), g.o.Executors.Activity(s.o.Clock.Now()))
	if g.o.Budget != nil {
		// Else a guest whose budget is spent would get a round at each start.
		bill := g.Bill()
		g.setSanction(g.o.Budget.Charge(quota.Measured{Charged: bill.Used, Executed: max(bill.Executed, 0)}, 0))
	}
	mode := ipc.ModeFree
	if s.launches.byKernel && !s.over() {
		mode = ipc.ModeByKernel // whether it may go ahead depends on the other guests
	}
	g.setLaunchMode(mode, false)
	if g.o.Page != nil {
		g.o.Page.SetWorkLogWanted(s.gpu.ByExecutors)
	}
}

// Remove forgets a guest. Once it has returned, the scheduler does not use the guest's page.
func (s *Scheduler) Remove(g *Guest) {
	s.stopListening(g)
	s.roster.Lock()
	defer s.roster.Unlock()
	s.guests = slices.DeleteFunc(s.guests, func(o *Guest) bool { return o == g })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, g)
	if s.launches.holder == g {
		s.closeTurn(nil) // as long as its page is open
	}
	if g.o.Budget != nil {
		// No round will charge it what it used in this one.
		g.recent.executed = max(g.recent.executed, g.o.Executors.Activity(s.o.Clock.Now()).Counters.GPUTime)
		g.o.Budget.Charge(g.measured(g.Bill().Used), 0)
	}
	if g.o.Key != "" && g.Terms().Cap > 0 && !s.gpu.ByExecutors {
		s.left = append(s.left, g)
	}
}

// forgetRemoved drops what is known of guests that were removed, once their launches are settled.
//
// Preconditions: s.mu is held.
func (s *Scheduler) forgetRemoved() {
	for _, g := range s.removed {
		s.launches.ledger.Forget(g.id)
		s.launches.predictor.Forget(g.id)
		for _, id := range g.owned {
			if s.owners[id] == g {
				delete(s.owners, id)
			}
		}
	}
	s.removed = s.removed[:0]
}

// leftIn fills s.leftUse with what guests that were removed in a phase used in it.
//
// Preconditions: s.mu is held.
func (s *Scheduler) leftIn(p *accounting.Phase) {
	s.leftUse = s.leftUse[:0]
	for _, g := range s.left {
		use := fairshare.Left{Key: g.o.Key}
		for _, id := range g.owned {
			if owner := s.owners[id]; owner == nil || owner == g {
				use.Used += p.Of(id).Busy
			}
		}
		s.leftUse = append(s.leftUse, use)
	}
}

// locked calls f with the guests in order of ID while s.roster and s.mu are held.
func (s *Scheduler) locked(f func([]*Guest)) {
	s.roster.RLock()
	defer s.roster.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.guests)
}

// over reports whether nothing is decided.
//
// Preconditions: s.mu is held.
func (s *Scheduler) over() bool { return s.failed || s.stopped }

// SetPolicy changes the policy. Suspended guests stay so until the next decision. If the policy is the
// present one nothing changes, and what guests owe and are owed stays.
func (s *Scheduler) SetPolicy(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy != nil && name == s.policyName {
		return nil
	}
	return s.startPolicy(name)
}

// startPolicy starts a policy from its beginning.
//
// Preconditions: s.mu is held.
func (s *Scheduler) startPolicy(name string) error {
	p, err := fairshare.New(name, s.o.PolicyOptions)
	if err != nil {
		return err
	}
	s.usePolicy(name, fairshare.Bound(p), fairshare.ByKernel(name))
	s.o.Log.Info("policy", "gpu", s.o.Name, "policy", name)
	return nil
}

// usePolicy replaces the policy. byKernel says whether it decides about single launches.
//
// Preconditions: s.mu is held.
func (s *Scheduler) usePolicy(name string, p fairshare.Policy, byKernel bool) {
	s.policy, s.policyName = p, name
	s.dropSlices = true
	s.launches.queue.Reannounce()
	s.setByKernel(byKernel)
	s.launches.evictions.Restart()
}

// Properties returns the GPU's properties as it is open now.
func (s *Scheduler) Properties() gpu.Properties {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gpu.Properties
}

// Policy returns the name of the policy.
func (s *Scheduler) Policy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policyName
}

// SetMaxOverhead changes which part of the GPU's time policy ffs may lose; 0 is its default. That
// policy starts again from its beginning.
func (s *Scheduler) SetMaxOverhead(v float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.PolicyOptions.MaxOverhead = v
	if s.policyName != "ffs" {
		return nil
	}
	return s.startPolicy(s.policyName)
}

// SetEvictionDeadline changes how long a kernel may take to leave the GPU; 0 is no limit.
func (s *Scheduler) SetEvictionDeadline(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launches.setEvictionDeadline(d)
}

// SetBusyWait changes how launches are waited for. Guests are told with the next decision.
func (s *Scheduler) SetBusyWait(b BusyWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launches.busyWait.BusyWait = b
}

// Failed implements [accounting.Handler]: the GPU can't be watched any more, so everybody runs and
// nothing is decided until Recover.
func (s *Scheduler) Failed(err error) {
	s.o.Log.Error("GPU can't be watched any more", events.Kind(events.GPUFailed), "gpu", s.o.Name, "err", err)
	s.locked(func(guests []*Guest) {
		s.problem, s.failed = err.Error(), true
		s.resumeAll(guests)
	})
}

// Recover ends what Failed or SetProblem began.
func (s *Scheduler) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem, s.failed = "", false
}

// SetProblem notes why the GPU can't be used, unless a reason is known already. It reports whether
// the reason is new.
func (s *Scheduler) SetProblem(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != "" {
		return false
	}
	s.problem = err.Error()
	return true
}

// Stop resumes every guest for good: whatever a watcher that has yet to notice the end reports
// after it, nothing is decided.
func (s *Scheduler) Stop() {
	s.locked(func(guests []*Guest) {
		s.stopped = true
		s.resumeAll(guests)
	})
}

// resumeAll resumes every guest.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) resumeAll(guests []*Guest) {
	s.setLaunchModes(guests)
	for _, g := range guests {
		g.SetSuspended(false, s.o.Clock.Now())
		s.controlContexts(g)
	}
}

// Changed tells the policy of a guest that came, left, or has other terms; 0 is none in particular.
// The present round ends early (LoGA §4.2).
func (s *Scheduler) Changed(id fairshare.GuestID) {
	s.locked(func(guests []*Guest) {
		s.setLaunchModes(guests)
		s.readLaunches(guests)
		s.observe(guests, &accounting.Phase{})
		s.updateShares(guests)
		s.decide(guests, fairshare.Event{Kind: fairshare.Changed, Guest: id})
	})
	s.Notify()
}

// Notify ends the present round early: a guest or one of its channels came or went, which may call
// for a decision.
func (s *Scheduler) Notify() {
	if s.notify != nil {
		s.notify()
	}
}

// Heartbeat shows all guests that the daemon is alive, and looks for contexts and channels that
// came or went since the last call.
func (s *Scheduler) Heartbeat() {
	changed := fairshare.GuestID(0)
	s.roster.RLock()
	for _, g := range s.guests {
		g.Heartbeat(s.o.Clock.Now())
		if n := g.o.Executors.Generation(); n != g.generation.Swap(n) {
			changed = g.id
		}
	}
	s.roster.RUnlock()
	if changed != 0 {
		s.Changed(changed)
	}
}

// Status is what there is to report about a GPU and its scheduler.
type Status struct {
	Properties gpu.Properties
	Policy     string
	Problem    string // why the GPU can't be used; empty if it can
	Guests     int
	BusyRatio  float64 // the part of time lately in which the GPU executed
	// Busy, Idle, Switching and Switches are estimated for the time that was not watched.
	Busy, Idle, Switching, Watched time.Duration
	Switches, Rounds, Polls        uint64
	// Gaps counts readings that came too late, GapTime how long these gaps were.
	Gaps    uint64
	GapTime time.Duration
	// ByKernel reports whether launches wait for verdicts.
	ByKernel  bool
	Launches  launchqueue.Counts
	Evictions launchqueue.EvictionSummary
	Accuracy  launchqueue.Accuracy
}

// Status returns what there is to report.
func (s *Scheduler) Status() (st Status) {
	s.locked(func(guests []*Guest) {
		t, l := &s.tally, &s.launches
		st = Status{
			Properties: s.gpu.Properties, Policy: s.policyName, Problem: s.problem, Guests: len(guests),
			BusyRatio: t.busyLately, Busy: t.busy, Idle: t.idle, Switching: t.switching, Watched: t.watched,
			Switches: t.switches, Rounds: t.rounds, Polls: t.polls, Gaps: t.gaps, GapTime: t.gapTime,
			ByKernel: l.byKernel, Launches: l.queue.Count(), Evictions: l.evictions.Summary(), Accuracy: l.predictor.Accuracy(),
		}
	})
	return st
}

// LaunchesOf returns how many launches of a guest there are, how well their durations were
// predicted, and how long they took to leave the GPU when told.
func (s *Scheduler) LaunchesOf(g *Guest) (launchqueue.Counts, launchqueue.Accuracy, launchqueue.Histogram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launches.queue.CountOf(g.id), s.launches.predictor.AccuracyOf(g.id), g.evictions
}
