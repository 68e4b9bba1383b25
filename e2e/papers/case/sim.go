package main

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"vgpud/gpu/soft/machine"
)

// holding is the part of its life in which a job holds its GPU memory.
type holding uint8

const (
	// fromAllocation is from the first allocation to the last free, as a task of the paper does.
	fromAllocation holding = iota
	// fromLaunch is from the first launch to the last free, as with a lazy runtime.
	fromLaunch
	// forLife is for the whole process.
	forLife
)

// scheduler decides when processes start, and on which GPU each task runs.
type scheduler interface {
	// start reports whether the process of the next job may start now.
	start(r *run) bool
	// begin is called when a task asks for a GPU. The scheduler answers with sim.place, at once or
	// later, or with sim.crash.
	begin(r *run)
	// quiet is called when a placed task begins a step: quiet reports whether that is on the host.
	quiet(r *run, quiet bool)
	// free is called when a task has freed its memory, and exit when its process ends.
	free(r *run)
	exit(r *run)
	// settle is called when everything of an instant has happened. It returns when it wants to be
	// called again, or 0.
	settle() time.Duration
}

// run is a job in a simulation.
type run struct {
	*job
	id    int
	gpu   int // where its task is, or -1
	next  int // the next of steps
	group *machine.Group
	ch    *machine.Channel
	l     machine.Launch

	// held is set while the task's memory is on the GPU, leaving while it is copied to the host, and
	// blocked while a step waits for it. begun is set once the task was placed, freed once it ended.
	held, leaving, blocked, begun, freed bool
	crashed                              bool
}

// timer is something that happens at a time.
type timer struct {
	at  time.Duration
	seq int
	do  func()
}

type timers []timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), q[i].seq-q[j].seq) < 0
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)   { *q = append(*q, x.(timer)) }
func (q *timers) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	*q = (*q)[:last]
	return t
}

// sim is a host with jobs.
type sim struct {
	h        *host
	hold     holding
	sched    scheduler
	now      time.Duration
	seq      int
	queue    timers
	woken    time.Duration // when settle is called next
	machines []*machine.Machine
	memory   []uint64 // bytes that jobs have on each GPU
	arrived  []*run   // not started
	running  int
	runs     []*run
	result   outcome
	busy     []time.Duration // of each machine at the last sample
}

// outcome is what a simulation finds.
type outcome struct {
	// length is when the last job has ended, and done how many have succeeded.
	length time.Duration
	done   int
	// ended is when each job ended, or 0 if it crashed.
	ended []time.Duration
	// busy is the part of the GPUs that executed in each second.
	busy []float64
	// kernels is how many launches there were, and slowed the sum of their slowdowns.
	kernels int
	slowed  float64
	// overcommitted is how often GPU memory was exceeded.
	overcommitted int
}

// throughput returns the jobs that succeeded in a second.
func (o *outcome) throughput() float64 { return float64(o.done) / o.length.Seconds() }

// slowdown returns by which part launches took longer than alone, on average.
func (o *outcome) slowdown() float64 { return o.slowed / float64(o.kernels) }

// utilisation returns the mean over the jobs' time, and the largest second's.
func (o *outcome) utilisation() (mean, peak float64) {
	for _, b := range o.busy {
		mean += b
		peak = max(peak, b)
	}
	return mean / (o.length.Seconds()), peak
}

// mean returns the mean utilisation.
func (o *outcome) mean() float64 {
	mean, _ := o.utilisation() // and the peak
	return mean
}

// simulate runs jobs, which all arrive at once, to their end.
func simulate(h *host, jobs []*job, hold holding, make func(*sim) scheduler) *outcome {
	s := &sim{h: h, hold: hold}
	for range h.gpus {
		s.machines = append(s.machines, machine.New(h.config(), 0, nil))
	}
	s.memory, s.busy = newSlice[uint64](h.gpus), newSlice[time.Duration](h.gpus)
	for i, j := range jobs {
		s.runs = append(s.runs, &run{job: j, id: i, gpu: -1})
	}
	s.arrived = slices.Clone(s.runs)
	s.result.ended = newSlice[time.Duration](len(jobs))
	s.sched = make(s)
	s.at(sample, s.sample)
	s.startMore()
	s.settle()
	for s.running > 0 || len(s.arrived) > 0 {
		s.advance()
	}
	s.result.length = s.now
	s.sampleRest()
	return &s.result
}

func newSlice[T any](n int) []T { return make([]T, n) }

// at has something happen after a time.
func (s *sim) at(after time.Duration, do func()) {
	s.seq++
	heap.Push(&s.queue, timer{s.now + after, s.seq, do})
}

// advance goes on to the next instant at which something happens.
func (s *sim) advance() {
	to := machine.Never
	if len(s.queue) > 0 {
		to = s.queue[0].at
	}
	for _, m := range s.machines {
		to = min(to, m.Next())
	}
	if to == machine.Never {
		panic("the jobs wait for each other")
	}
	s.now = to
	for _, m := range s.machines {
		for evs := m.Step(to); evs != nil; evs = m.Step(to) {
			for _, e := range evs {
				if e.Kind == machine.Finished {
					s.launched(e.Launch.Tag.(*run))
				}
			}
		}
	}
	for len(s.queue) > 0 && s.queue[0].at <= s.now {
		heap.Pop(&s.queue).(timer).do()
	}
	s.settle()
}

func (s *sim) settle() {
	if at := s.sched.settle(); at > s.now && at != s.woken {
		s.woken = at
		s.at(at-s.now, func() {})
	}
}

// startMore starts processes as far as the scheduler lets them.
func (s *sim) startMore() {
	for len(s.arrived) > 0 && s.sched.start(s.arrived[0]) {
		r := s.arrived[0]
		s.arrived = s.arrived[1:]
		s.running++
		if s.hold == forLife {
			s.sched.begin(r)
			continue
		}
		s.at(r.before, func() { s.body(r) })
	}
}

// place lets a task have its memory on a GPU.
func (s *sim) place(r *run, gpu int) {
	r.gpu, r.held = gpu, true
	if s.memory[gpu] += r.request.Memory; s.memory[gpu] > s.h.spec.Memory {
		s.result.overcommitted++
	}
	s.attach(r)
	blocked := r.blocked
	r.blocked = false
	switch {
	case !r.begun && s.hold == forLife:
		r.begun = true
		s.at(r.before, func() { s.body(r) })
	case !r.begun || blocked:
		r.begun = true
		s.body(r)
	}
}

// attach makes a channel on the task's GPU.
func (s *sim) attach(r *run) {
	g, err := s.machines[r.gpu].NewGroup()
	if err != nil {
		panic(err)
	}
	if r.ch, err = g.NewChannel(); err != nil {
		panic(err)
	}
	r.group = g
}

// body goes on with the steps of a task.
func (s *sim) body(r *run) {
	if !r.begun {
		if s.hold != fromLaunch || r.next == len(r.steps) || r.steps[r.next].kind != onHost {
			s.sched.begin(r)
			return
		}
	} else if r.next == len(r.steps) {
		s.finish(r)
		return
	}
	st := r.steps[r.next]
	if r.begun {
		s.sched.quiet(r, st.kind == onHost)
	}
	if st.kind != onHost && (!r.held || r.leaving) {
		r.blocked = true
		return
	}
	r.next++
	if st.kind != onGPU {
		s.at(st.time, func() { s.body(r) })
		return
	}
	r.l = machine.Launch{Work: st.work, Tag: r}
	if err := r.ch.Submit(&r.l); err != nil {
		panic(err)
	}
}

// launched is called when a task's launch has ended.
func (s *sim) launched(r *run) {
	s.result.kernels++
	s.result.slowed += float64(s.now-r.l.Start())/float64(r.l.Duration+s.machines[0].Config().Overhead) - 1
	s.body(r)
}

// finish ends a task, and then its process.
func (s *sim) finish(r *run) {
	if s.hold != forLife {
		s.release(r)
	}
	s.at(r.after, func() {
		if s.hold == forLife {
			s.release(r)
		}
		s.exit(r)
	})
}

// release frees a task's memory.
func (s *sim) release(r *run) {
	s.take(r)
	r.freed = true
	s.sched.free(r)
}

// take takes a task's memory off its GPU.
func (s *sim) take(r *run) {
	if r.held {
		s.memory[r.gpu] -= r.request.Memory
		r.held, r.leaving = false, false
		r.group.Close()
		r.group = nil
	}
}

// crash ends a process that ran out of memory.
func (s *sim) crash(r *run) {
	r.crashed = true
	s.exit(r)
}

func (s *sim) exit(r *run) {
	s.running--
	if !r.crashed {
		s.result.done++
		s.result.ended[r.id] = s.now
	}
	s.sched.exit(r)
	s.startMore()
}

// sample is how long utilisation is averaged over.
const sample = time.Second

func (s *sim) sample() {
	s.result.busy = append(s.result.busy, s.busySince()/float64(sample))
	s.at(sample, s.sample)
}

// sampleRest adds the last part of a second.
func (s *sim) sampleRest() { s.result.busy = append(s.result.busy, s.busySince()/float64(sample)) }

// busySince returns how long the machines executed since it was last called, on average.
func (s *sim) busySince() (mean float64) {
	for i, m := range s.machines {
		b := m.Totals().Busy
		mean += float64(b-s.busy[i]) / float64(len(s.machines))
		s.busy[i] = b
	}
	return mean
}
