package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"vgpud/accounting"
	"vgpud/gpu/soft/machine"
)

// Sim is a GPU with guests, in simulated time. It is not safe for concurrent use.
type Sim struct {
	m      *machine.Machine
	shown  machine.Shown
	guests []*Guest
	coming submissions
	seq    uint64
	seed   uint64

	read        time.Duration // of one register
	changed     bool          // something changed during the newest Sample
	polled      bool          // a poller is active
	polledSince time.Duration
}

var _ accounting.PolledSimulation = (*Sim)(nil)

// New returns a GPU without guests, at its clock's epoch. Equal configurations, seeds and guests
// give equal runs.
func New(cfg machine.Config, seed uint64) (*Sim, error) {
	cfg.Live = false
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sim{seed: seed}
	s.m = machine.New(cfg, 0, &s.shown)
	return s, nil
}

// Load describes what a guest does.
type Load struct {
	Name string
	// Depth is the number of commands that the guest keeps submitted, at least 1. Ahead is the most
	// of them that the host has fetched to the GPU, 2 by default.
	Depth, Ahead int
	// Next draws the next command, and how long the guest thinks after a command's end before it
	// submits the next.
	Next func(r *rand.Rand) (w machine.Work, think time.Duration)
}

// Guest is a guest of a Sim, with one channel group and one channel.
type Guest struct {
	s         *Sim
	name      string
	load      Load
	rand      *rand.Rand
	group     *machine.Group
	ch        *machine.Channel
	suspended bool
	gone      bool

	ring      []*machine.Launch // submitted and not fetched
	fetched   int
	submitted uint64
	completed uint64
	latest    time.Duration
	waitSince time.Duration // since when it has had no command
	idle      time.Duration
	workSince time.Duration // since when the GPU has had a command of it
	worked    time.Duration
	late      time.Duration
	// suspendedAt and resumedAt delimit the newest suspension.
	suspendedAt, resumedAt time.Duration
}

// Add attaches a guest. It submits each of its first Depth commands after one think time.
func (s *Sim) Add(l Load) (*Guest, error) {
	l.Depth = max(l.Depth, 1)
	if l.Ahead <= 0 {
		l.Ahead = 2
	}
	g := &Guest{s: s, name: l.Name, load: l, rand: rand.New(rand.NewPCG(s.seed, uint64(len(s.guests)+1))), waitSince: s.m.Now()}
	var err error
	if g.group, err = s.m.NewGroup(); err != nil {
		return nil, fmt.Errorf("add guest %s: %w", l.Name, err)
	}
	if g.ch, err = g.group.NewChannel(); err != nil {
		return nil, fmt.Errorf("add guest %s: %w", l.Name, err)
	}
	s.guests = append(s.guests, g)
	for range l.Depth {
		g.think(&machine.Launch{Tag: g})
	}
	s.arrive()
	return g, nil
}

// Remove removes a guest and ends its running commands.
func (s *Sim) Remove(g *Guest) {
	g.gone, g.suspended = true, true
	g.ring = nil
	g.group.Close()
}

// think makes the guest submit l as another command after its think time.
func (g *Guest) think(l *machine.Launch) {
	work, think := g.load.Next(g.rand)
	l.Work = work
	g.s.seq++
	heap.Push(&g.s.coming, submission{at: g.s.m.Now() + max(think, 0), seq: g.s.seq, l: l, g: g})
}

// arrive submits the commands that are due.
func (s *Sim) arrive() {
	for len(s.coming) > 0 && s.coming[0].at <= s.m.Now() {
		c := heap.Pop(&s.coming).(submission)
		g := c.g
		if g.gone {
			continue
		}
		if wait := s.busBusy(); wait > 0 && !c.waited {
			c.at, c.waited = c.at+wait, true
			heap.Push(&s.coming, c)
			continue
		}
		if len(g.ring)+g.fetched == 0 {
			g.idle += s.m.Now() - g.waitSince
		}
		g.ring = append(g.ring, c.l)
		g.submitted++
		g.latest = s.m.Now()
		g.feed()
	}
}

// feed fetches commands from the guest's ring to the GPU.
func (g *Guest) feed() {
	n := 0
	for n < len(g.ring) && !g.suspended && g.fetched < g.load.Ahead {
		// The channel is open and the launch is not queued, so Submit succeeds.
		if err := g.ch.Submit(g.ring[n]); err != nil {
			panic("sim: " + err.Error())
		}
		if g.fetched == 0 {
			g.workSince = g.s.m.Now()
		}
		n++
		g.fetched++
	}
	g.ring = append(g.ring[:0], g.ring[n:]...)
}

// ended handles the end of a command.
func (g *Guest) ended(l *machine.Launch) {
	if g.gone {
		return
	}
	now := g.s.m.Now()
	g.completed++
	until := now
	if !g.suspended {
		until = g.resumedAt
	}
	g.late += max(until-max(now-l.Elapsed(), g.suspendedAt), 0)
	if g.fetched--; g.fetched == 0 {
		g.worked += now - g.workSince
	}
	if len(g.ring)+g.fetched == 0 {
		g.waitSince = g.s.m.Now()
	}
	g.think(l)
	g.feed()
}

// Now returns the GPU's time.
func (s *Sim) Now() time.Duration { return s.m.Now() }

// Totals returns the GPU's exact usage.
func (s *Sim) Totals() machine.Totals { return s.m.Totals() }

// Guests returns all guests ever added, in that order.
func (s *Sim) Guests() []*Guest { return s.guests }

// AdvanceTo advances the GPU's time to t.
func (s *Sim) AdvanceTo(t time.Duration) {
	for {
		to := t
		if len(s.coming) > 0 {
			to = min(to, s.coming[0].at)
		}
		if evs := s.m.Step(to); evs != nil {
			for _, e := range evs {
				if e.Kind == machine.Finished {
					e.Launch.Tag.(*Guest).ended(e.Launch)
				}
			}
			s.arrive()
			continue
		}
		s.arrive()
		if to == t && (len(s.coming) == 0 || s.coming[0].at > t) && s.m.Next() > t {
			return
		}
	}
}

// SetSuspended stops or resumes the fetching of the guest's commands. Commands that were fetched run
// on.
func (g *Guest) SetSuspended(suspended bool) {
	suspended = suspended || g.gone
	switch now := g.s.m.Now(); {
	case suspended && !g.suspended:
		g.suspendedAt = now
	case !suspended && g.suspended:
		g.resumedAt = now
	}
	g.suspended = suspended
	g.feed()
}

// Name returns the guest's name.
func (g *Guest) Name() string { return g.name }

// Group returns the number that the registers show while the guest executes.
func (g *Guest) Group() accounting.GroupID { return accounting.GroupID(g.group.ID()) }

// SetSlice sets the group's time slice.
func (g *Guest) SetSlice(d time.Duration) { g.group.SetSlice(d) }

// Usage returns the guest's exact usage.
func (g *Guest) Usage() machine.Usage { return g.group.Usage() }

// Backlogged reports whether the guest has commands that have not ended.
func (g *Guest) Backlogged() bool { return len(g.ring)+g.fetched > 0 }

// InFlight reports whether the GPU has any of the guest's commands.
func (g *Guest) InFlight() bool { return g.fetched > 0 }

// Idle returns how long the guest has had no command at all.
func (g *Guest) Idle() time.Duration {
	if g.Backlogged() || g.gone {
		return g.idle
	}
	return g.idle + g.s.m.Now() - g.waitSince
}

// Progress counts a guest's commands.
type Progress struct {
	Submitted, Completed uint64
	// LastSubmit is when the newest command was submitted.
	LastSubmit time.Duration
}

// Progress returns how far the guest's commands are.
func (g *Guest) Progress() Progress {
	return Progress{Submitted: g.submitted, Completed: g.completed, LastSubmit: g.latest}
}

// Worked returns how long the GPU has had any of the guest's commands.
func (g *Guest) Worked() time.Duration {
	if g.fetched == 0 {
		return g.worked
	}
	return g.worked + g.s.m.Now() - g.workSince
}

// LateTime returns how long commands that have ended executed while the guest was suspended.
func (g *Guest) LateTime() time.Duration { return g.late }

// submission is a command that a guest will submit.
type submission struct {
	at     time.Duration
	seq    uint64
	l      *machine.Launch
	g      *Guest
	waited bool // for the bus
}

// submissions is a heap by time, then by order of creation.
type submissions []submission

func (h submissions) Len() int { return len(h) }

func (h submissions) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h submissions) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *submissions) Push(x any) { *h = append(*h, x.(submission)) }

func (h *submissions) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = submission{}
	*h = old[:len(old)-1]
	return x
}
