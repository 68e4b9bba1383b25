package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// forms holds a kernel's forms and chooses among them.
type forms struct {
	ctx      *Context
	key      cache.Key
	original uint64    // handle of the original
	ordered  bool      // its blocks wait for earlier ones, see orderKept
	handles  [3]uint64 // of the forms' entries, by bit; 0 if there is none
	offered  abi.PreemptForm
	recalled tune.Record // from an earlier program

	mu             sync.Mutex
	tuner          *tune.Tuner // nil if no form was made because the kernel is known to be short
	info           Preemption  // without Kernel and Classes
	reportedRounds int         // measuring rounds that were saved
	longLaunches   int         // consecutive launches of a kernel known to be short that took longer than the wanted latency

	occupancyMu sync.Mutex
	occupancies [16]occupancy
	next        int
}

// bit returns a form's index in handles.
func bit(f abi.PreemptForm) int {
	switch f {
	case abi.PreemptSingle:
		return 0
	case abi.PreemptCoarse:
		return 1
	}
	return 2
}

// launchForm is the form of a launch. Its zero value is for a kernel that has only the original.
type launchForm struct {
	forms  *forms
	ticket tune.Ticket
	form   abi.PreemptForm
}

// errNoForm means that the kernel does not have the form that was asked for.
var errNoForm = errors.New("the kernel can't be launched in that form")

// pick chooses the form of a launch.
func (k *forms) pick(ctx context.Context, l *Launch) (abi.Preempt, launchForm) {
	c := launchForm{forms: k}
	shape := l.shape()
	var choice abi.Preempt
	tuned := k.tuner != nil && mayReplace(l.Attributes) && k.orderKept(l)
	if tuned {
		choice, c.ticket = k.pickTuned(ctx, shape)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info.Launches++
	if c.form = choice.Form; c.form != 0 {
		k.info.Preemptible++
	}
	return choice, c
}

// pickTuned returns the tuner's choice, but the original if the GPU can't hold a block of the
// chosen form, which needs more resources than the original. Until the host has answered that, it
// picks only forms that were measured before. It waits for the answer where the first launch of a
// class is to go in a form at once.
func (k *forms) pickTuned(ctx context.Context, s tune.Shape) (abi.Preempt, tune.Ticket) {
	slots := k.resident(k.original, s)
	if slots == 0 && k.atOnce(s) {
		slots = k.residentNow(ctx, k.original, s)
	}
	slots = max(slots, 0)
	k.mu.Lock()
	choice, ticket := k.tuner.Pick(s, slots)
	measured := ticket.Measured()
	k.mu.Unlock()
	if choice.Form == 0 {
		return choice, ticket
	}
	// resident may complete launches, which takes mu.
	n := k.resident(k.handles[bit(choice.Form)], s)
	if n == 0 && ticket == (tune.Ticket{}) {
		n = k.residentNow(ctx, k.handles[bit(choice.Form)], s)
	}
	if n > 0 || n == 0 && measured {
		return choice, ticket
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n == 0 {
		k.tuner.Postpone(ticket)
	} else {
		k.tuner.Discard(ticket)
	}
	return abi.Preempt{}, tune.Ticket{}
}

// atOnce reports whether a launch is the first of its class and is to go in a form at once.
func (k *forms) atOnce(s tune.Shape) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tuner.AtOnce(s)
}

// force returns the form that a launch asks for.
func (l *Launch) force() (abi.Preempt, launchForm, error) {
	f, choice := l.Function, l.Preempt.choice()
	k := f.forms
	if choice.Form == 0 {
		return choice, launchForm{}, nil
	}
	if k == nil || k.info.Forms&choice.Form == 0 {
		p := f.Preemption()
		return choice, launchForm{}, fmt.Errorf("%w: %v, it has %v (%s)", errNoForm, choice.Form, p.Forms, p.Reason)
	}
	if !k.orderKept(l) {
		return choice, launchForm{}, fmt.Errorf("%w: its blocks wait for one another, in a grid of several dimensions", errNoForm)
	}
	// Persistent blocks are wasteful for a small grid, but correct.
	tasks := l.shape().Tasks
	bounded := choice
	bounded.Form &= abi.PreemptSingle | abi.PreemptCoarse
	if a := choice.Attribute(); bounded.Form != 0 && !tune.Possible(bounded, bounded.Form, tasks) {
		return choice, launchForm{}, fmt.Errorf("%w: %+v of %d blocks", errNoForm, choice, tasks)
	} else if _, err := abi.DecodePreempt(&a); err != nil {
		return choice, launchForm{}, fmt.Errorf("%w: %w", errNoForm, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info.Launches++
	k.info.Preemptible++
	return choice, launchForm{forms: k, form: choice.Form}, nil
}

// mayReplace reports whether a launch with those attributes may use another form: one whose blocks
// are not all resident at once and form no clusters.
func mayReplace(attributes []abi.Attribute) bool {
	for i := range attributes {
		switch attributes[i].ID {
		case abi.AttributeCooperative, abi.AttributeCluster, abi.AttributePreempt:
			return false
		}
	}
	return true
}

// orderKept reports whether the kernel's forms run the launch's blocks in an order in which waiting
// for earlier blocks ends. Blocks wait in the order of %ctaid.x (package preempt, lookback.go),
// which is the order of tasks only if the grid has one dimension.
func (k *forms) orderKept(l *Launch) bool {
	g := l.Grid.array()
	return !k.ordered || g[1] == 1 && g[2] == 1
}

// shape returns what the tuner distinguishes launches by.
func (l *Launch) shape() tune.Shape {
	g, b := l.Grid.array(), l.Block.array()
	return tune.Shape{Tasks: volume(g), Threads: uint32(min(volume(b), 1<<31)), SharedBytes: l.SharedBytes}
}

// volume returns how many blocks or threads a box has, at most 2³¹, above which nothing
// distinguishes.
func volume(d [3]uint32) uint64 {
	const many = 1 << 31
	n := min(uint64(d[0])*uint64(d[1]), many)
	return min(n*uint64(d[2]), many)
}

// completionOverhead is the assumed cost of a launch in another form beside its time on the GPU,
// where that can't be measured: the host must notice its end before the channel continues.
const completionOverhead = 50 * time.Microsecond

// finish records the end of a launch. before is when the GPU completed the channel's previous
// command if the launch was queued behind it, and 0 otherwise.
func (c *launchForm) finish(r *abi.Completion, before uint64) {
	k := c.forms
	k.ctx.preempt.askHostSoon(r.End)
	k.mu.Lock()
	defer k.mu.Unlock()
	evictions := uint64(0)
	if c.form != 0 {
		evictions = r.Value[0]
		k.info.Evictions += evictions
	}
	if k.tuner == nil {
		k.checkShort(r)
		return
	}
	w := k.ctx.preempt.wanted()
	k.tuner.SetWanted(w)
	if r.Status != abi.StatusOK || evictions > 0 || r.End <= r.Start {
		k.tuner.Discard(c.ticket)
	} else {
		ran := nanos(r.End - r.Start)
		cost := ran
		switch {
		case before > 0 && before < r.End:
			cost = nanos(r.End - before)
		case c.form != 0:
			cost += completionOverhead
		}
		k.tuner.Observe(c.ticket, ran, cost)
	}
	if n := k.tuner.Rounds(); n != k.reportedRounds {
		k.reportedRounds = n
		k.ctx.preempt.markDirty(k)
	}
}

// discard records a launch that did not start or whose end is unknown.
func (c *launchForm) discard() {
	if k := c.forms; k != nil && k.tuner != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tuner.Discard(c.ticket)
	}
}

// maxLongLaunches is the number of consecutive long launches after which a kernel no longer counts
// as short.
const maxLongLaunches = 4

// checkShort checks that a kernel which has no forms because it is known to be short still is. If
// not, it drops that record, so that the next program to load the kernel makes all forms. mu is
// held.
func (k *forms) checkShort(r *abi.Completion) {
	switch {
	case k.longLaunches >= maxLongLaunches: // the record was dropped before
		return
	case r.Status != abi.StatusOK || nanos(r.End-r.Start) <= k.ctx.preempt.wanted().Latency:
		k.longLaunches = 0
		return
	}
	if k.longLaunches++; k.longLaunches == maxLongLaunches {
		k.ctx.preempt.markDirty(k)
	}
}

// entry returns what was learned about the kernel.
func (k *forms) entry() cache.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := cache.Entry{Key: k.key, Name: k.info.Kernel, Forms: k.offered, Reason: k.info.Reason}
	switch {
	case k.tuner != nil:
		e.Record = k.tuner.Record()
	case k.longLaunches < maxLongLaunches:
		e.Record = k.recalled
	}
	return e
}

// occupancy is how many of a kernel's blocks the GPU holds at once.
type occupancy struct {
	handle  uint64     // of the original or a form
	shape   tune.Shape // without Tasks
	slots   int        // 0 if unknown, -1 if the GPU can't hold one
	used    bool
	pending bool // the answer is under way
	awaited bool // a launch waited for it
	answer  Pending
}

// resident returns how many blocks of the original or a form, named by its handle, the GPU holds at
// once: 0 if unknown, -1 if none. A grid that fits the GPU as the original must not be launched in
// a form of which the GPU may hold fewer blocks (see tune.Offered). resident asks the host once for
// each block size and does not wait for the answer: a launch must not wait for commands under way
// on the context's own channel. If the host does not answer, the number of threads gives an upper
// bound.
func (k *forms) resident(handle uint64, s tune.Shape) int {
	s.Tasks = 0
	k.occupancyMu.Lock()
	defer k.occupancyMu.Unlock()
	o := k.occupancy(handle, s)
	if o == nil {
		return 0
	}
	if !o.pending {
		return o.slots
	}
	if !o.answer.Done() {
		k.ctx.Own().tryReap()
	}
	if o.answer.Done() {
		o.pending, o.slots = false, k.residentByThreads(s)
		switch perSM := o.answer.value()[0]; {
		case o.answer.err != nil || o.answer.result.Status != abi.StatusOK || perSM >= 1<<16:
		case perSM == 0:
			o.slots = -1
		default:
			o.slots = int(perSM) * k.ctx.preempt.sms
		}
	}
	return o.slots
}

// occupancyWait bounds how long a first launch waits for an answer of the host about occupancy. It
// takes some 50 µs, unless the guest is suspended.
const occupancyWait = 10 * time.Millisecond

// residentNow is resident, but waits for the host's answer, once and until ctx ends.
func (k *forms) residentNow(ctx context.Context, handle uint64, s tune.Shape) int {
	s.Tasks = 0
	k.occupancyMu.Lock()
	if o := k.occupancy(handle, s); o != nil && o.pending && !o.awaited {
		o.awaited = true
		ctx, cancel := context.WithTimeout(ctx, occupancyWait)
		_ = o.answer.Wait(ctx) // resident judges the answer, if there is one
		cancel()
	}
	k.occupancyMu.Unlock()
	return k.resident(handle, s)
}

// occupancy returns the entry for a shape. A new entry asks the host. It returns nil if all entries
// wait for answers. occupancyMu is held.
func (k *forms) occupancy(handle uint64, s tune.Shape) *occupancy {
	for i := range k.occupancies {
		if o := &k.occupancies[i]; o.used && o.handle == handle && o.shape == s {
			return o
		}
	}
	o := &k.occupancies[k.next%len(k.occupancies)]
	if o.pending && !o.answer.Done() {
		return nil
	}
	k.next++
	o.handle, o.shape, o.used, o.awaited, o.slots = handle, s, true, false, 0
	var e abi.Entry
	abi.Occupancy{Function: handle, BlockThreads: s.Threads, SharedBytes: uint64(s.SharedBytes)}.Encode(&e)
	o.pending = k.ctx.Own().tryEnqueue(&o.answer, &e, abi.Header{Op: abi.OpOccupancy})
	o.used = o.pending // else the next launch asks again
	return o
}

// residentByThreads returns how many blocks the GPU holds at most, by their threads alone.
func (k *forms) residentByThreads(s tune.Shape) int {
	const blocksPerSM = 32
	p := k.ctx.preempt
	return p.sms * max(min(p.threadsPerSM/int(max(s.Threads, 1)), blocksPerSM), 1)
}
