package driver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// forms are a kernel's forms, and what chooses among them.
type forms struct {
	ctx      *Context
	key      cache.Key
	original uint64    // the original's handle
	waits    bool      // its blocks wait for earlier ones, see ordered
	handles  [3]uint64 // of the entries, by the form's bit; 0: none
	offered  abi.PreemptForm
	before   tune.Record // as it was recalled

	mu    sync.Mutex
	tuner *tune.Tuner // nil where no form was made because the kernel is known to be short
	info  Preemption  // but for Kernel and Classes
	known int         // rounds of measuring that were told of
	long  int         // launches in a row that took longer than the latency wanted, of a kernel that is known to be short

	asking sync.Mutex
	asked  [16]occupancy
	next   int
}

// bit is a form's place in handles.
func bit(f abi.PreemptForm) int {
	switch f {
	case abi.PreemptSingle:
		return 0
	case abi.PreemptCoarse:
		return 1
	}
	return 2
}

// chosen is a launch's form. Its zero value is a launch of a kernel that has only the original.
type chosen struct {
	forms  *forms
	ticket tune.Ticket
	form   abi.PreemptForm
}

// errForm says that a form was asked for that there is not.
var errForm = errors.New("the kernel can't be launched in that form")

// pick chooses the form of a launch on ch.
func (k *forms) pick(ch *Channel, l *Launch) (abi.Preempt, chosen) {
	c := chosen{forms: k}
	shape := l.shape()
	var choice abi.Preempt
	tuned := k.tuner != nil && plain(l.Attributes) && k.ordered(l)
	if tuned {
		choice, c.ticket = k.tuned(shape)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info.Launches++
	if c.form = choice.Form; c.form != 0 {
		k.info.Preemptible++
	}
	return choice, c
}

// tuned returns the tuner's choice; the original in place of a form of which the GPU holds no block, since what a form
// takes more may leave room for none. Until the host has said, only a form that was measured before is launched.
func (k *forms) tuned(s tune.Shape) (abi.Preempt, tune.Ticket) {
	slots := max(k.held(k.original, s), 0)
	k.mu.Lock()
	choice, ticket := k.tuner.Pick(s, slots)
	measured := ticket.Measured()
	k.mu.Unlock()
	if choice.Form == 0 {
		return choice, ticket
	}
	// Asking may end launches, which takes mu.
	if n := k.held(k.handles[bit(choice.Form)], s); n > 0 || n == 0 && measured {
		return choice, ticket
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tuner.Lost(ticket)
	return abi.Preempt{}, tune.Ticket{}
}

// force is pick for a launch that says its form.
func (l *Launch) force() (abi.Preempt, chosen, error) {
	f, choice := l.Function, l.Preempt.choice()
	k := f.forms
	if choice.Form == 0 {
		return choice, chosen{}, nil
	}
	if k == nil || k.info.Forms&choice.Form == 0 {
		p := f.Preemption()
		return choice, chosen{}, fmt.Errorf("%w: %v, it has %v (%s)", errForm, choice.Form, p.Forms, p.Reason)
	}
	if !k.ordered(l) {
		return choice, chosen{}, fmt.Errorf("%w: its blocks wait for one another, in a grid of several dimensions", errForm)
	}
	// Persistent blocks of a small grid are a waste, and no mistake.
	tasks := l.shape().Tasks
	bounded := choice
	bounded.Form &= abi.PreemptSingle | abi.PreemptCoarse
	if a := choice.Attribute(); bounded.Form != 0 && !tune.Possible(bounded, bounded.Form, tasks) {
		return choice, chosen{}, fmt.Errorf("%w: %+v of %d blocks", errForm, choice, tasks)
	} else if _, err := abi.DecodePreempt(&a); err != nil {
		return choice, chosen{}, fmt.Errorf("%w: %w", errForm, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.info.Launches++
	k.info.Preemptible++
	return choice, chosen{forms: k, form: choice.Form}, nil
}

// plain reports whether a launch with those attributes may go in another form: its blocks need not all be there at
// once, nor in clusters.
func plain(attributes []abi.Attribute) bool {
	for i := range attributes {
		switch attributes[i].ID {
		case abi.AttributeCooperative, abi.AttributeCluster, abi.AttributePreempt:
			return false
		}
	}
	return true
}

// ordered reports whether the kernel's forms run the launch's blocks in the order that they may wait for one another in.
// That is of %ctaid.x (package preempt, lookback.go), which is the order of tasks where the grid has one dimension.
func (k *forms) ordered(l *Launch) bool {
	g := l.Grid.array()
	return !k.waits || g[1] == 1 && g[2] == 1
}

// shape is what the tuner knows a launch by.
func (l *Launch) shape() tune.Shape {
	g, b := l.Grid.array(), l.Block.array()
	return tune.Shape{Tasks: count(g), Threads: uint32(min(count(b), 1<<31)), SharedBytes: l.SharedBytes}
}

// count is how many there are in a box; it stops counting where it does not matter any more.
func count(d [3]uint32) uint64 {
	const many = 1 << 31
	n := min(uint64(d[0])*uint64(d[1]), many)
	return min(n*uint64(d[2]), many)
}

// besides is what a launch in another form than the original is taken to need beside its time on the GPU, where that
// can't be seen: the host has to find it done before the channel goes on.
const besides = 50 * time.Microsecond

// ended tells of a launch's end. before is when the GPU had done with what was before it in the channel, if it was
// waiting then; else 0.
func (c *chosen) ended(r *abi.Completion, before uint64) {
	k := c.forms
	k.mu.Lock()
	defer k.mu.Unlock()
	evictions := uint64(0)
	if c.form != 0 {
		evictions = r.Value[0]
		k.info.Evictions += evictions
	}
	if k.tuner == nil {
		k.watch(r)
		return
	}
	if r.Status != abi.StatusOK || evictions > 0 || r.End <= r.Start {
		k.tuner.Lost(c.ticket)
	} else {
		ran := nanos(r.End - r.Start)
		cost := ran
		switch {
		case before > 0 && before < r.End:
			cost = nanos(r.End - before)
		case c.form != 0:
			cost += besides
		}
		k.tuner.ObserveCost(c.ticket, ran, cost)
	}
	if n := k.tuner.Rounds(); n != k.known {
		k.known = n
		k.ctx.preempt.note(k)
	}
}

// lost tells of a launch that did not begin, or whose end is not known.
func (c *chosen) lost() {
	if k := c.forms; k != nil && k.tuner != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tuner.Lost(c.ticket)
	}
}

// longEnough is after how many long launches in a row a kernel is not taken for short any more.
const longEnough = 4

// watch looks whether a kernel that no form was made of, since it was known to be short, still is. If not, that is
// forgotten, and the next program that loads it has all forms. mu is held.
func (k *forms) watch(r *abi.Completion) {
	wanted := k.ctx.preempt.opts.Wanted.Latency
	if wanted <= 0 {
		wanted = tune.DefaultLatency
	}
	switch {
	case k.long >= longEnough: // it has been said
		return
	case r.Status != abi.StatusOK || nanos(r.End-r.Start) <= wanted:
		k.long = 0
		return
	}
	if k.long++; k.long == longEnough {
		k.ctx.preempt.note(k)
	}
}

// entry is what was learned.
func (k *forms) entry() cache.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := cache.Entry{Key: k.key, Name: k.info.Kernel, Forms: k.offered, Reason: k.info.Reason}
	switch {
	case k.tuner != nil:
		e.Record = k.tuner.Record()
	case k.long < longEnough:
		e.Record = k.before
	}
	return e
}

// occupancy is how many of a kernel's blocks the GPU holds at once.
type occupancy struct {
	handle uint64     // of the original or a form
	shape  tune.Shape // but for Tasks
	slots  int        // 0 until the host has answered, -1 for not one
	used   bool
	wanted bool // the answer is under way
	answer Pending
}

// held returns how many blocks of the original or a form, by its handle, the GPU holds at once: 0 where it is not known
// yet, -1 for not one. A grid that fits as the original must not be launched in a form, of which the GPU may hold fewer
// (see tune.Offered). It asks the host once for each size of blocks, and does not wait for the answer: a launch must not
// wait for what is under way on the context's own channel. Where the host does not say, it goes by the threads alone,
// which is never less.
func (k *forms) held(handle uint64, s tune.Shape) int {
	s.Tasks = 0
	k.asking.Lock()
	defer k.asking.Unlock()
	o := k.occupancy(handle, s)
	if o == nil {
		return 0
	}
	if !o.wanted {
		return o.slots
	}
	if !o.answer.Done() {
		k.ctx.Own().glance()
	}
	if o.answer.Done() {
		o.wanted, o.slots = false, k.guess(s)
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

// occupancy finds the place of a shape, or makes one and asks; nil where all are being asked for. asking is held.
func (k *forms) occupancy(handle uint64, s tune.Shape) *occupancy {
	for i := range k.asked {
		if o := &k.asked[i]; o.used && o.handle == handle && o.shape == s {
			return o
		}
	}
	o := &k.asked[k.next%len(k.asked)]
	if o.wanted && !o.answer.Done() {
		return nil
	}
	k.next++
	o.handle, o.shape, o.used, o.slots = handle, s, true, 0
	var e abi.Entry
	abi.Occupancy{Function: handle, BlockThreads: s.Threads, SharedBytes: uint64(s.SharedBytes)}.Encode(&e)
	o.wanted = k.ctx.Own().offer(&o.answer, &e, abi.Header{Op: abi.OpOccupancy})
	o.used = o.wanted // else it is asked again
	return o
}

// guess is how many blocks the GPU holds by their threads alone.
func (k *forms) guess(s tune.Shape) int {
	const blocksPerSM = 32
	p := k.ctx.preempt
	return p.sms * max(min(p.threadsPerSM/int(max(s.Threads, 1)), blocksPerSM), 1)
}
