package simt

import (
	"errors"
	"fmt"
)

// An event is a grid of one warp that takes the place of a warp of another grid between any two of
// its instructions, and gives it back when it has ended (Hetherington and others: EDGE, PACT 2019,
// §IV.D). It executes in the warp's registers, whose values are saved, if there are enough of them,
// and before the block's other warps. The warp's paths stay as they are, and so do barriers: others
// that come to one while the warp is away wait for it if it has not arrived.

// ErrNoEvent means that a grid can't take the place of a warp, or the warp can't be preempted.
var ErrNoEvent = errors.New("not an event for this warp")

// bank is a set of registers.
type bank struct {
	r32  [][lanes]uint32
	r64  [][lanes]uint64
	pred []uint32
}

// holds reports whether b has at least as many registers as o.
func (b *bank) holds(o *bank) bool {
	return len(o.r32) <= len(b.r32) && len(o.r64) <= len(b.r64) && len(o.pred) <= len(b.pred)
}

// swap exchanges the values of b's registers with those of as many in o.
func (b *bank) swap(o *bank) {
	for i := range b.r32 {
		b.r32[i], o.r32[i] = o.r32[i], b.r32[i]
	}
	for i := range b.r64 {
		b.r64[i], o.r64[i] = o.r64[i], b.r64[i]
	}
	for i := range b.pred {
		b.pred[i], o.pred[i] = o.pred[i], b.pred[i]
	}
}

func (w *warp) bank() bank { return bank{w.r32, w.r64, w.pred} }

// Preempt has an event take the place of a warp of the block once the warp has executed so many more
// instructions, or has ended. Step executes the event. The event is a grid with one block of at most
// 32 threads, without shared memory, that has not been started. A fault of the event is the block's.
func (b *Block) Preempt(warp, after int, event *Grid) error {
	refuse := func(why string) error { return fmt.Errorf("preempt warp %d: %s: %w", warp, why, ErrNoEvent) }
	switch {
	case warp < 0 || warp >= len(b.warps) || after < 0:
		return refuse(fmt.Sprintf("of %d, after %d instructions", len(b.warps), after))
	case b.live == 0:
		return refuse("its block has ended")
	case event.Blocks() != 1 || event.Started() != 0:
		return refuse(fmt.Sprintf("the event has %d blocks, of which %d were started", event.Blocks(), event.Started()))
	case event.threads > lanes || event.shared > 0:
		return refuse(fmt.Sprintf("the event has %d threads and %d bytes of shared memory", event.threads, event.shared))
	}
	w := &b.warps[warp]
	if w.watch == nil {
		w.watch = &watch{}
	}
	if w.watch.event != nil {
		return refuse("another event has it")
	}
	w.watch.event, w.watch.after = event.StartBlock(b.sm), after
	b.events++
	return nil
}

// preempted reports whether an event has the warp's place.
func (w *warp) preempted() bool {
	x := w.watch
	return x != nil && x.event != nil && (x.after == 0 || w.state == warpDone)
}

// runEvent executes the event that has a warp's place, and returns the number of its instructions.
// It reports false if the event sleeps.
func (b *Block) runEvent(w *warp, budget int) (n int, awake bool) {
	x := w.watch
	e := &x.event.warps[0]
	if x.lent == nil {
		own := e.bank()
		x.lent = &own
		if v := w.bank(); v.holds(&own) {
			w.giveRegisters()
			e.r32, e.r64, e.pred = w.r32[:len(own.r32)], w.r64[:len(own.r64)], w.pred[:len(own.pred)]
		}
	}
	g := x.event.grid // which forgets its block when that has ended
	before := g.counts.WarpInstructions
	r := x.event.Step(Now{Cycle: b.now.Cycle + b.spent, Nanos: b.nanos(b.spent), CyclesPerUS: b.now.CyclesPerUS}, budget)
	b.spent += r.Cycles
	n = max(1, int(g.counts.WarpInstructions-before))
	switch r.State {
	case Sleeping:
		b.nextWake = min(b.nextWake, r.Wake)
		return n, false
	case Faulted:
		b.fault = r.Fault
		fallthrough
	case Finished:
		w.giveRegisters()
		e.r32, e.r64, e.pred = x.lent.r32, x.lent.r64, x.lent.pred
		x.event, x.lent = nil, nil
		b.events--
		if x.trace == nil {
			w.watch = nil
		}
	}
	return n, true
}

// giveRegisters exchanges the values of an event's and its victim's registers, if the event has the
// victim's. Twice has no effect.
func (w *warp) giveRegisters() {
	if x := w.watch; x != nil && x.lent != nil {
		if v := w.bank(); v.holds(x.lent) {
			x.lent.swap(&v)
		}
	}
}
