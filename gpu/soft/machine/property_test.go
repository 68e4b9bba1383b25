package machine

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/accounting/nvreg"
)

// world is a machine under random use, with what must always be true of it.
type world struct {
	t       *rapid.T
	m       *Machine
	shown   Shown
	groups  []*Group
	chans   []*Channel
	gone    Usage // of closed groups
	ended   uint64
	pending map[*Launch]bool
	asked   map[*Launch]bool // to leave
}

func (w *world) step(to time.Duration) {
	last := w.m.Now()
	for {
		evs := w.m.Step(to)
		if w.m.Now() < last {
			w.t.Fatalf("time went back from %v to %v", last, w.m.Now())
		}
		last = w.m.Now()
		w.check()
		if evs == nil {
			break
		}
		for _, e := range evs {
			switch e.Kind {
			case Finished:
				w.ended++
				delete(w.pending, e.Launch)
			case Evicted:
				if !w.asked[e.Launch] {
					w.t.Fatal("a launch left without an eviction")
				}
				delete(w.pending, e.Launch)
			}
		}
	}
	if w.m.Now() != to {
		w.t.Fatalf("stepped to %v, stands at %v", to, w.m.Now())
	}
}

// check compares accounts and registers with the truth.
func (w *world) check() {
	t := w.m.Totals()
	if t.Busy+t.Idle+t.Switching != t.Elapsed {
		w.t.Fatalf("busy %v + idle %v + switching %v is not %v", t.Busy, t.Idle, t.Switching, t.Elapsed)
	}
	busy, switching := w.gone.Busy, w.gone.Switching
	for _, g := range w.groups {
		busy += g.usage.Busy
		switching += g.usage.Switching
	}
	if busy != t.Busy || switching != t.Switching {
		w.t.Fatalf("groups: busy %v switching %v; machine: %v and %v", busy, switching, t.Busy, t.Switching)
	}
	if t.Launches != w.ended && t.Launches < w.ended {
		w.t.Fatalf("%d launches ended, machine counts %d", w.ended, t.Launches)
	}
	if err := w.registers(); err != nil {
		w.t.Fatal(err)
	}
}

// registers says what the register file shows wrongly. There is no lag here.
func (w *world) registers() error {
	s, m := w.shown.State, w.m
	switch {
	case m.switching.to != nil:
		if s.NextTSGID != m.switching.to.id || !s.Busy || (s.Context == nvreg.ContextLoad) != m.switching.loading {
			return fmt.Errorf("switching to %d, shown %+v", m.switching.to.id, s)
		}
	case m.resident == nil:
		if s.Context != nvreg.ContextInvalid || s.Busy {
			return fmt.Errorf("no group is on the engine, shown %+v", s)
		}
	default:
		if s.Context != nvreg.ContextValid || s.TSGID != m.resident.id {
			return fmt.Errorf("group %d is on the engine, shown %+v", m.resident.id, s)
		}
		if executes := !m.on.empty() || len(m.co.cohorts) > 0; s.Busy != executes {
			return fmt.Errorf("executing is %v, shown %+v", executes, s)
		}
	}
	for id, c := range m.channels {
		var e nvreg.ChannelEntry
		if id < len(w.shown.Entries) {
			e = w.shown.Entries[id]
		}
		switch {
		case c == nil:
			if e != 0 {
				return fmt.Errorf("channel %d is free, shown %v", id, e)
			}
		case e.Working() != (len(c.queue) > 0):
			return fmt.Errorf("channel %d has %d launches, shown %v", id, len(c.queue), e)
		case e&nvreg.ChannelOnEng != 0 != c.on:
			return fmt.Errorf("channel %d is on the engine: %v, shown %v", id, c.on, e)
		case m.cfg.Mode != CoRun && (len(c.queue) > 0 && m.on.has(c.queue[0])) != c.on:
			return fmt.Errorf("channel %d: on the engine is %v, the launch says otherwise", id, c.on)
		}
	}
	return nil
}

// side checks launches that execute side by side: they are of one group, each the first of its
// channel, and the SMs have what their blocks occupy.
func (w *world) side() {
	used := make([]Resources, w.m.cfg.SMs)
	for _, l := range w.m.on.launches {
		if l.channel.group != w.m.resident || l.channel.queue[0] != l {
			w.t.Fatalf("a launch of channel %d executes beside those of group %d", l.channel.id, w.m.resident.id)
		}
		if l.placed == nil && len(w.m.on.launches) > 1 {
			w.t.Fatal("a launch that fills the machine executes beside others")
		}
		var n uint64
		for sm, k := range l.placed {
			used[sm] = used[sm].add(l.block1(), k)
			n += uint64(k)
		}
		if most := min(l.Blocks, uint64(w.m.cfg.SMs*w.m.cfg.Occupancy(l.Need))); n != most {
			w.t.Fatalf("%d blocks are resident, want %d", n, most)
		}
	}
	for sm, u := range used {
		if left := w.m.cfg.SM.add(u, -1); left != w.m.on.free[sm] || left.Blocks < 0 || left.Threads < 0 || left.Registers < 0 || left.Shared > w.m.cfg.SM.Shared {
			w.t.Fatalf("SM %d: %+v is used, %+v is free", sm, u, w.m.on.free[sm])
		}
	}
}

func TestMachineKeepsItsAccounts(t *testing.T) {
	for _, mode := range []Mode{Exclusive, Slices, CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { random(t, mode) })
		})
	}
}

func random(t *rapid.T, mode Mode) {
	w := &world{t: t, pending: map[*Launch]bool{}, asked: map[*Launch]bool{}}
	w.m = New(Config{
		Mode: mode, SMs: 3, SM: Resources{Blocks: 4, Threads: 512, Registers: 4096, Shared: 1 << 14},
		Groups: 6, Channels: 10, Live: rapid.Bool().Draw(t, "live"),
	}, 5*time.Second, &w.shown)
	t.Repeat(map[string]func(*rapid.T){
		"group": func(t *rapid.T) {
			if g, err := w.m.NewGroup(); err == nil {
				w.groups = append(w.groups, g)
			} else if len(w.groups) < 6 {
				t.Fatal(err)
			}
		},
		"channel": func(t *rapid.T) {
			if len(w.groups) == 0 {
				t.Skip("no group")
			}
			if c, err := rapid.SampledFrom(w.groups).Draw(t, "group").NewChannel(); err == nil {
				w.chans = append(w.chans, c)
			}
		},
		"submit": func(t *rapid.T) {
			if len(w.chans) == 0 {
				t.Skip("no channel")
			}
			c := rapid.SampledFrom(w.chans).Draw(t, "channel")
			l := &Launch{Work: Work{
				Duration: time.Duration(rapid.Int64Range(0, int64(5*ms)).Draw(t, "duration")),
				Blocks:   rapid.Uint64Range(0, 40).Draw(t, "blocks"),
				Need:     Resources{Threads: rapid.IntRange(1, 512).Draw(t, "threads")},
				Open:     rapid.Float64Range(0, 1).Draw(t, "open") < 0.2,
				Limit:    time.Duration(rapid.SampledFrom([]int64{0, 0, int64(2 * ms)}).Draw(t, "limit")),
			}}
			if err := c.Submit(l); (err == nil) != c.open {
				t.Fatalf("submit: %v, channel open is %v", err, c.open)
			} else if err == nil {
				w.pending[l] = true
			}
		},
		"settle": func(t *rapid.T) {
			if l := w.pick(t, func(l *Launch) bool { return l.Open }); l != nil {
				w.m.Settle(l, time.Duration(rapid.Int64Range(0, int64(5*ms)).Draw(t, "duration")))
			}
		},
		"evict": func(t *rapid.T) {
			if l := w.pick(t, func(l *Launch) bool { return true }); l != nil {
				w.asked[l] = l.state == begun || w.asked[l]
				w.m.Evict(l, time.Duration(rapid.Int64Range(0, int64(ms)).Draw(t, "after")))
			}
		},
		"kill": func(t *rapid.T) {
			if l := w.pick(t, func(l *Launch) bool { return true }); l != nil {
				w.m.Kill(l)
				delete(w.pending, l)
			}
		},
		"enable": func(t *rapid.T) {
			if len(w.groups) > 0 {
				rapid.SampledFrom(w.groups).Draw(t, "group").SetEnabled(rapid.Bool().Draw(t, "on"))
			}
		},
		"close channel": func(t *rapid.T) {
			if len(w.chans) > 0 {
				rapid.SampledFrom(w.chans).Draw(t, "channel").Close()
			}
		},
		"close group": func(t *rapid.T) {
			if len(w.groups) == 0 || rapid.IntRange(0, 3).Draw(t, "really") > 0 {
				t.Skip("no")
			}
			i := rapid.IntRange(0, len(w.groups)-1).Draw(t, "group")
			g := w.groups[i]
			u := g.Usage()
			w.gone.Busy += u.Busy
			w.gone.Switching += u.Switching
			w.groups = append(w.groups[:i:i], w.groups[i+1:]...)
			g.Close()
		},
		"pass": func(t *rapid.T) {
			w.step(w.m.Now() + time.Duration(rapid.Int64Range(0, int64(8*ms)).Draw(t, "time")))
		},
		"": func(t *rapid.T) {
			w.t = t
			w.m.Next() // lets the dispatcher decide, as any caller does before it waits
			w.check()
			for l := range w.pending {
				if !l.Queued() {
					delete(w.pending, l)
				}
			}
			w.side()
			// The engine must not idle beside work that may run.
			if w.m.on.empty() && w.m.switching.to == nil && len(w.m.co.cohorts) == 0 {
				for _, c := range w.m.channels {
					if c != nil && len(c.queue) > 0 && !c.group.disabled && len(w.m.events) == w.m.returned {
						t.Fatalf("channel %d of group %d has work and the engine idles", c.id, c.group.id)
					}
				}
			}
		},
	})
	// Everything enabled and settled, everything ends.
	for _, g := range w.groups {
		g.SetEnabled(true)
	}
	for range 100 {
		for l := range w.pending {
			if l.Open && l.Queued() {
				w.m.Settle(l, ms)
			}
		}
		w.step(w.m.Now() + 100*ms)
	}
	for _, c := range w.m.channels {
		if c != nil && len(c.queue) > 0 {
			t.Fatalf("channel %d still has %d launches", c.id, len(c.queue))
		}
	}
}

func (w *world) pick(t *rapid.T, ok func(*Launch) bool) *Launch {
	// In a fixed order, so that a failure can be repeated.
	for _, c := range w.chans {
		for _, l := range c.queue {
			if ok(l) && rapid.Bool().Draw(t, "this") {
				return l
			}
		}
	}
	return nil
}
