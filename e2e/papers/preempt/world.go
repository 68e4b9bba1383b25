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

// react is how long a verdict takes to reach the GPU: the daemon's bell, the
// executor's wake and its call. An assumption; a launch call takes 2.7 µs on an
// H100, and an answer through memory 2.
const react = 10 * time.Microsecond

// contextSwitch is what the GPU takes from one program's context to another's that
// had nothing to do before: as measured on an H100 (machine.Config).
const contextSwitch = 135 * time.Microsecond

// options of a world.
type options struct {
	policy string
	// switching is what a context switch costs; 0 where all share one (MPS).
	switching time.Duration
	weights   []float64 // of guests; nil: 1 each
	overhead  float64   // ffs' bound; 0 is its default
	seed      uint64
}

// job is one launch of a program.
type job struct {
	id       fairshare.LaunchID
	guest    int
	program  *program
	priority int
	// foreseen is how long the policy is told that it will run.
	foreseen time.Duration
	done     func(*job) // called when it has ended; may be nil

	arrived, began, ended time.Duration
	left                  float64 // of the kernel
	used                  time.Duration
	evictions             int
	asked                 time.Duration // when it was told to leave the last time
	gone                  []time.Duration

	here, let, leaving bool // arrived and not done; let run; told to leave
	begun              bool // executes
	launch             machine.Launch
}

// turnaround is from arrival to end.
func (j *job) turnaround() time.Duration { return j.ended - j.arrived }

// world is programs on a GPU under a policy, in simulated time: what the mediator
// does about launches.
type world struct {
	options
	m        *machine.Machine
	channels []*machine.Channel
	groups   []*machine.Group
	policyp  fairshare.Policy
	rng      *rand.Rand

	coming actions
	seq    uint64
	jobs   []*job // here
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
	// The papers bound no guest's evictions.
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

// at has something done at an instant.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	heap.Push(&w.coming, action{at: max(t, w.m.Now()), seq: w.seq, do: do})
}

// arrive has a job arrive at an instant.
func (w *world) arrive(t time.Duration, j *job) {
	w.nextID++
	j.id = w.nextID
	j.left = 1
	j.launch.Tag = j
	if j.foreseen == 0 {
		j.foreseen = j.program.length
	}
	w.at(t, func() {
		j.here, j.arrived = true, w.m.Now()
		w.jobs = append(w.jobs, j)
		w.decide(fairshare.Arrived, j)
	})
}

// run carries the world to an instant, or until nothing is left to happen.
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
				w.happened(e)
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

// happened takes in what the machine did.
func (w *world) happened(e machine.Event) {
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
		w.left(j)
	case machine.Finished:
		j.used += e.Launch.Elapsed()
		j.here, j.let, j.leaving, j.begun = false, false, false, false
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

// left is a job's leaving the GPU.
func (w *world) left(j *job) {
	j.used += j.launch.Elapsed()
	j.let, j.leaving, j.begun = false, false, false
	j.evictions++
	j.gone = append(j.gone, w.m.Now()-j.asked)
	w.total++
	w.decide(fairshare.Evicted, j)
}

// decide asks the policy and has its verdicts carried out.
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
			ID: j.id, Guest: g.ID, Context: uint64(g.ID), Arrived: j.arrived, Running: j.let, Evicting: j.leaving, Priority: j.priority,
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
		case v.Action == fairshare.Run && !j.let:
			j.let = true
			w.at(now+react, func() { w.submit(j) })
		case v.Action == fairshare.Evict && j.let && !j.leaving:
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

// submit puts what is left of a job on the GPU.
func (w *world) submit(j *job) {
	j.launch.Work = machine.Work{Duration: j.program.rest(j.left)}
	if err := w.channels[j.guest].Submit(&j.launch); err != nil {
		panic("preemptbench: " + err.Error()) // the channel is open and the job not in it
	}
}

// remaining is which part of the kernel is left to do, with what the present run has done.
func (j *job) remaining() float64 {
	if !j.begun {
		return j.left
	}
	return (1 - min(float64(j.launch.Elapsed())/float64(max(j.launch.Duration, 1)), 1)) * j.left
}

// evict carries an eviction out.
func (w *world) evict(j *job) {
	switch {
	case !j.leaving: // it has ended meanwhile
	case !j.begun:
		// It waits in its channel: the executor takes it back.
		w.m.Kill(&j.launch)
		w.left(j)
	default:
		done := j.left - j.remaining()
		l := j.program.leave(1-j.left+done, w.rng)
		w.m.Evict(&j.launch, l.latency)
		j.left = max(j.left-done-l.gain, 0)
	}
}

// action is something that is to be done.
type action struct {
	at  time.Duration
	seq uint64
	do  func()
}

// actions is a heap by time, those of one instant in the order in which they came.
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
