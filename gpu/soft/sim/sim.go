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

	read        time.Duration // of a register
	torn        bool          // whether something changed as the newest Sample was read
	polled      bool          // whether somebody polls
	polledSince time.Duration
}

var (
	_ accounting.Simulation = (*Sim)(nil)
	_ accounting.Polled     = (*Sim)(nil)
	_ accounting.Gate       = (*gate)(nil)
)

// New makes a GPU at its clock's epoch, without guests. Runs of the same configuration, seed and guests are the same.
func New(cfg machine.Config, seed uint64) (*Sim, error) {
	cfg.Live = false
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sim{seed: seed}
	s.m = machine.New(cfg, 0, &s.shown)
	return s, nil
}

// Load is what a guest does.
type Load struct {
	Name string
	// Depth is how many commands the guest keeps submitted, at least 1, and Ahead how many of them the host has fetched
	// to the GPU at most, 2 by default.
	Depth, Ahead int
	// Next draws the next command, and how long the guest thinks, after a command's end, before it submits that one.
	Next func(r *rand.Rand) (w machine.Work, think time.Duration)
}

// Guest is a guest of a Sim, with one channel group and one channel.
type Guest struct {
	s     *Sim
	name  string
	load  Load
	rand  *rand.Rand
	group *machine.Group
	ch    *machine.Channel
	held  bool
	gone  bool

	ring      []*machine.Launch // submitted and not fetched
	fetched   int
	submitted uint64
	completed uint64
	latest    time.Duration
	issued    uint64        // to the GPU
	first     time.Duration // when the first of those was, since TakeIssued
	took      uint64        // issued, as of that
	waitSince time.Duration // since when it has had no work at all
	dry       time.Duration
}

// Add attaches a guest. Its first Depth commands come after one think time each.
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

// Remove takes a guest away: what runs of it is ended.
func (s *Sim) Remove(g *Guest) {
	g.gone, g.held = true, true
	g.ring = nil
	g.group.Close()
}

// think has the guest submit another command after its think time.
func (g *Guest) think(l *machine.Launch) {
	work, think := g.load.Next(g.rand)
	l.Work = work
	g.s.seq++
	heap.Push(&g.s.coming, submission{at: g.s.m.Now() + max(think, 0), seq: g.s.seq, l: l, g: g})
}

// arrive submits what is due.
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
			g.dry += s.m.Now() - g.waitSince
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
	for n < len(g.ring) && !g.held && g.fetched < g.load.Ahead {
		// The channel is open and the launch not queued, so it is taken.
		if err := g.ch.Submit(g.ring[n]); err != nil {
			panic("sim: " + err.Error())
		}
		if g.issued++; g.issued == g.took+1 {
			g.first = g.s.m.Now()
		}
		n++
		g.fetched++
	}
	g.ring = append(g.ring[:0], g.ring[n:]...)
}

// ended is a command's end.
func (g *Guest) ended(l *machine.Launch) {
	if g.gone {
		return
	}
	g.completed++
	g.fetched--
	if len(g.ring)+g.fetched == 0 {
		g.waitSince = g.s.m.Now()
	}
	g.think(l)
	g.feed()
}

// Now is the GPU's clock.
func (s *Sim) Now() time.Duration { return s.m.Now() }

// Totals are the GPU's accounts: the truth.
func (s *Sim) Totals() machine.Totals { return s.m.Totals() }

// Guests are those that were ever added, in that order.
func (s *Sim) Guests() []*Guest { return s.guests }

// AdvanceTo carries the GPU's clock to t.
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

// Hold stops feeding the guest's commands to the GPU, or goes on with it. What was fetched runs.
func (g *Guest) Hold(held bool) {
	g.held = held || g.gone
	g.feed()
}

// Name is the guest's name.
func (g *Guest) Name() string { return g.name }

// Group is what the registers show while the guest executes.
func (g *Guest) Group() accounting.GroupID { return accounting.GroupID(g.group.ID()) }

// SetSlice sets the group's time slice.
func (g *Guest) SetSlice(d time.Duration) { g.group.SetSlice(d) }

// Usage is what the guest has used: the truth.
func (g *Guest) Usage() machine.Usage { return g.group.Usage() }

// Backlogged is whether the guest has commands that have not ended, and InFlight whether the GPU has any of them.
func (g *Guest) Backlogged() bool { return len(g.ring)+g.fetched > 0 }

// InFlight is whether the GPU has any of the guest's commands.
func (g *Guest) InFlight() bool { return g.fetched > 0 }

// Dry is how long the guest has had no command at all.
func (g *Guest) Dry() time.Duration {
	if g.Backlogged() || g.gone {
		return g.dry
	}
	return g.dry + g.s.m.Now() - g.waitSince
}

// Progress is how far the guest's commands are.
func (g *Guest) Progress() accounting.Progress {
	return accounting.Progress{Submitted: g.submitted, Completed: g.completed, LastSubmit: g.latest}
}

// TakeIssued returns when the GPU was given the first of the guest's commands that it was given since the last call;
// zero where it was given none.
func (g *Guest) TakeIssued() (first time.Duration) {
	if g.issued > g.took {
		first = g.first
	}
	g.took = g.issued
	return first
}

// Gate lets guests through and holds them, for NEON's sampling. An owner is a guest's index in Guests.
func (s *Sim) Gate() accounting.Gate { return &gate{s: s} }

type gate struct {
	s      *Sim
	owners []accounting.Owner
}

// Owners implements accounting.Gate.
func (g *gate) Owners() []accounting.Owner {
	g.owners = g.owners[:0]
	for i, guest := range g.s.guests {
		if !guest.gone {
			g.owners = append(g.owners, accounting.Owner(i))
		}
	}
	return g.owners
}

// Admit implements accounting.Gate.
func (g *gate) Admit(owners []accounting.Owner) {
	for i, guest := range g.s.guests {
		held := true
		for _, o := range owners {
			held = held && o != accounting.Owner(i)
		}
		guest.Hold(held)
	}
}

// Drained implements accounting.Gate.
func (g *gate) Drained() bool {
	for _, guest := range g.s.guests {
		if !guest.gone && guest.fetched > 0 {
			return false
		}
	}
	return true
}

// Progress implements accounting.Gate.
func (g *gate) Progress(o accounting.Owner) accounting.Progress {
	if int(o) >= len(g.s.guests) {
		return accounting.Progress{}
	}
	return g.s.guests[o].Progress()
}

// submission is a command that a guest thinks about.
type submission struct {
	at     time.Duration
	seq    uint64
	l      *machine.Launch
	g      *Guest
	waited bool // for the bus
}

// submissions is a heap by time, those of one instant in the order in which they were thought of.
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
