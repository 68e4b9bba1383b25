package main

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vgpud/fairshare"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/machine/blocks"
)

// react is the time that a verdict takes to reach the GPU: the daemon's doorbell, the executor's
// wakeup and its call. It is an assumption; on an H100 a launch call takes 2.7 µs, and an answer
// through memory 2 µs.
const react = 10 * time.Microsecond

// contextSwitch is the time that the GPU takes to switch from one program's context to another's
// that had been idle, as measured on an H100 (machine.Config).
const contextSwitch = 135 * time.Microsecond

// options configures a world.
type options struct {
	policy string
	// switching is the cost of a context switch, or 0 if all programs share one context (MPS).
	switching time.Duration
	weights   []float64 // of guests; nil: 1 each
	overhead  float64   // ffs' bound; 0 means its default
	seed      uint64
}

// job is one launch of a program.
type job struct {
	id       fairshare.LaunchID
	guest    int
	program  *program
	priority int
	// foreseen is the predicted run time that the policy gets.
	foreseen time.Duration
	done     func(*job) // called when it has ended; may be nil

	arrived, began, ended time.Duration
	left                  float64 // fraction of the kernel
	used                  time.Duration
	evictions             int
	asked                 time.Duration // when it was last told to leave
	latencies             []time.Duration

	present, running, leaving bool // arrived and not done; may run; told to leave
	begun                     bool // its blocks execute
	launch                    machine.Launch
}

// turnaround returns the time from arrival to end.
func (j *job) turnaround() time.Duration { return j.ended - j.arrived }

// world simulates programs on a GPU under a policy. It plays the mediator's part in handling
// launches.
type world struct {
	options
	m        *machine.Machine
	channels []*machine.Channel
	groups   []*machine.Group
	policyp  fairshare.Policy
	rng      *rand.Rand

	coming actions
	seq    uint64
	jobs   []*job // present
	tick   time.Duration
	state  fairshare.State
	total  int // evictions
	nextID fairshare.LaunchID
}

func newWorld(guests int, o options) (*world, error) {
	cfg := machine.Config{SMs: blocks.H100.SMs, Overhead: -1, ExclusiveSwitch: o.switching}
	if o.switching == 0 {
		cfg.ExclusiveSwitch = -1
	}
	w := &world{options: o, m: machine.New(cfg, 0, nil), rng: rand.New(rand.NewPCG(o.seed, 3)), tick: machine.Never}
	var err error
	// The papers do not limit a guest's evictions.
	w.policyp, err = fairshare.New(o.policy, fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}, MaxOverhead: o.overhead, AtOnce: true})
	if err != nil {
		return nil, err
	}
	w.state.SMs = uint32(blocks.H100.SMs)
	for i := range guests {
		g, err := w.m.NewGroup()
		if err != nil {
			return nil, fmt.Errorf("guest %d: %w", i, err)
		}
		c, err := g.NewChannel()
		if err != nil {
			return nil, fmt.Errorf("guest %d: %w", i, err)
		}
		weight := 1.0
		if o.weights != nil {
			weight = o.weights[i]
		}
		w.groups, w.channels = append(w.groups, g), append(w.channels, c)
		w.state.Guests = append(w.state.Guests, fairshare.Guest{ID: fairshare.GuestID(i + 1), Weight: weight})
	}
	return w, nil
}

// at schedules do for time t.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	heap.Push(&w.coming, action{at: max(t, w.m.Now()), seq: w.seq, do: do})
}

// arrive schedules a job's arrival for time t.
func (w *world) arrive(t time.Duration, j *job) {
	w.nextID++
	j.id = w.nextID
	j.left = 1
	j.launch.Tag = j
	if j.foreseen == 0 {
		j.foreseen = j.program.length
	}
	w.at(t, func() {
		j.present, j.arrived = true, w.m.Now()
		w.jobs = append(w.jobs, j)
		w.decide(fairshare.Arrived, j)
	})
}

// run advances the simulation to the given time, or until no events remain.
func (w *world) run(until time.Duration) {
	for {
		next := min(until, w.tick)
		if len(w.coming) > 0 {
			next = min(next, w.coming[0].at)
		}
		if len(w.coming) == 0 && len(w.jobs) == 0 {
			return
		}
		if next == machine.Never && w.m.Next() == machine.Never {
			panic(fmt.Sprintf("preemptbench: %d launches wait under %s and nothing will happen", len(w.jobs), w.policy))
		}
		if events := w.m.Step(min(next, max(w.m.Next(), w.m.Now()))); events != nil {
			for _, e := range events {
				w.handle(e)
			}
			continue
		}
		now := w.m.Now()
		switch {
		case len(w.coming) > 0 && w.coming[0].at <= now:
			heap.Pop(&w.coming).(action).do()
		case w.tick <= now:
			w.decide(fairshare.Tick, nil)
		case now >= until:
			return
		}
	}
}

// handle handles an event of the machine.
func (w *world) handle(e machine.Event) {
	if e.Launch == nil {
		return
	}
	j := e.Launch.Tag.(*job)
	switch e.Kind {
	case machine.Started:
		if j.begun = true; j.used == 0 {
			j.began = w.m.Now()
		}
	case machine.Evicted:
		w.evicted(j)
	case machine.Finished:
		j.used += e.Launch.Elapsed()
		j.present, j.running, j.leaving, j.begun = false, false, false, false
		j.ended, j.left = w.m.Now(), 0
		w.forget(j)
		w.decide(fairshare.Finished, j)
		if j.done != nil {
			j.done(j)
		}
	}
}

func (w *world) forget(j *job) {
	for i := range w.jobs {
		if w.jobs[i] == j {
			w.jobs = append(w.jobs[:i], w.jobs[i+1:]...)
			return
		}
	}
}

// evicted handles a job that has left the GPU.
func (w *world) evicted(j *job) {
	j.used += j.launch.Elapsed()
	j.running, j.leaving, j.begun = false, false, false
	j.evictions++
	j.latencies = append(j.latencies, w.m.Now()-j.asked)
	w.total++
	w.decide(fairshare.Evicted, j)
}

// decide asks the policy and applies its verdicts.
func (w *world) decide(kind fairshare.EventKind, of *job) {
	now := w.m.Now()
	w.state.Launches = w.state.Launches[:0]
	for i := range w.state.Guests {
		w.state.Guests[i].Backlogged, w.state.Guests[i].Active = false, false
	}
	for _, j := range w.jobs {
		g := &w.state.Guests[j.guest]
		g.Backlogged, g.Active = true, true
		l := fairshare.Launch{
			ID: j.id, Guest: g.ID, Context: uint64(g.ID), Arrived: j.arrived, Running: j.running, Evicting: j.leaving, Priority: j.priority,
			Blocks: uint64(math.Ceil(j.left * float64(j.program.kernel.Tasks))), PerSM: uint32(j.program.kernel.PerSM),
			Used: j.used, Predicted: j.foreseen, Evictable: j.program.evictable(), EvictionCost: j.program.cost,
		}
		if j.begun {
			l.Used += j.launch.Elapsed()
		}
		w.state.Launches = append(w.state.Launches, l)
	}
	ev := fairshare.Event{Kind: kind}
	if of != nil {
		ev.Guest, ev.Launch = fairshare.GuestID(of.guest+1), of.id
	}
	verdicts, next := w.policyp.Decide(now, ev, w.state)
	w.tick = machine.Never
	if next > 0 {
		w.tick = now + next
	}
	for _, v := range verdicts {
		j := w.find(v.Launch)
		switch {
		case j == nil:
		case v.Action == fairshare.Run && !j.running:
			j.running = true
			w.at(now+react, func() { w.submit(j) })
		case v.Action == fairshare.Evict && j.running && !j.leaving:
			j.leaving, j.asked = true, now
			w.at(now+react, func() { w.evict(j) })
		}
	}
}

func (w *world) find(id fairshare.LaunchID) *job {
	for _, j := range w.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

// submit launches the rest of a job on the GPU.
func (w *world) submit(j *job) {
	j.launch.Work = machine.Work{Duration: j.program.rest(j.left)}
	if err := w.channels[j.guest].Submit(&j.launch); err != nil {
		panic("preemptbench: " + err.Error()) // cannot fail: the channel is open and the job is not in it
	}
}

// remaining returns the fraction of the kernel still to do, taking the present run's progress into
// account.
func (j *job) remaining() float64 {
	if !j.begun {
		return j.left
	}
	return (1 - min(float64(j.launch.Elapsed())/float64(max(j.launch.Duration, 1)), 1)) * j.left
}

// evict applies an eviction.
func (w *world) evict(j *job) {
	switch {
	case !j.leaving: // it has ended meanwhile
	case !j.begun:
		// The job waits in its channel, so the executor takes it back.
		w.m.Kill(&j.launch)
		w.evicted(j)
	default:
		done := j.left - j.remaining()
		l := j.program.sampleEviction(1-j.left+done, w.rng)
		w.m.Evict(&j.launch, l.latency)
		j.left = max(j.left-done-l.gain, 0)
	}
}

// action is a function to run at a given time.
type action struct {
	at  time.Duration
	seq uint64
	do  func()
}

// actions is a heap ordered by time, and by insertion for equal times.
type actions []action

func (h actions) Len() int { return len(h) }

func (h actions) Less(i, k int) bool {
	return h[i].at < h[k].at || h[i].at == h[k].at && h[i].seq < h[k].seq
}

func (h actions) Swap(i, k int) { h[i], h[k] = h[k], h[i] }

func (h *actions) Push(x any) { *h = append(*h, x.(action)) }

func (h *actions) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = action{}
	*h = old[:len(old)-1]
	return x
}
