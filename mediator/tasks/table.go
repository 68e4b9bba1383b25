package tasks

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/place"
	"vgpud/mediator/vgpu/abi"
)

// Table has the tasks of a host. Times are since any instant, and never go back.
type Table struct {
	queue   *place.Queue
	gpus    []place.Spec
	guests  map[string]*guest
	byID    map[place.TaskID]*task
	byKey   map[Key]*task
	lastID  place.TaskID
	lastGID fairshare.GuestID
	refused []Decision // not told yet
	waits   Waits
	moves   Moves
	actions []place.Action
	order   []*task // in order of asking

	outside  []GPU      // the host's, as they were last
	spares   []*spare   // in order of lending
	delayed  []Decision // that wait for spares to end
	recalled []Decision // not told yet
}

type guest struct {
	id fairshare.GuestID
	Guest
	// held are tasks that wait for the guest's own tasks, in order of asking.
	held []*task
	last int // 1 more than the GPU on which its last task was placed; 0: none was
}

type task struct {
	id     place.TaskID
	key    Key
	req    Request
	of     *guest
	asked  time.Duration
	held   bool
	placed bool
	gpu    int
	waited time.Duration
	told   bool
	reason abi.WaitReason // as last told

	first       uint64 // bytes that it asked for at first
	granted     uint64 // bytes on gpu
	want        uint64 // more memory that it waits for; 0: none
	leaves      bool   // it was told to leave, or to move
	toldToLeave time.Duration
	to          int       // the GPU that it moves to, or noGPU
	why         place.Why // it leaves or moves
	left        uint32    // how often it has left a GPU
	onHost      uint64    // bytes of the host's memory that it has
}

// noGPU is the number of no GPU.
const noGPU = -1

// New returns the table of a host with these GPUs, of which there is at least one. placer chooses
// among them.
func New(gpus []place.Spec, placer place.Placer) (*Table, error) {
	q, err := place.NewQueue(place.Config{Placer: placer}, gpus)
	if err != nil {
		return nil, err
	}
	return &Table{
		queue: q, gpus: slices.Clone(gpus), guests: make(map[string]*guest),
		byID: make(map[place.TaskID]*task), byKey: make(map[Key]*task),
	}, nil
}

// Admit adds a guest, or changes one. It fails if no GPU could hold the guest's limit.
func (t *Table) Admit(now time.Duration, name string, g Guest) error {
	old := t.guests[name]
	id := t.lastGID + 1
	if old != nil {
		id = old.id
	}
	next := &guest{id: id, Guest: g}
	if err := t.admit(now, next, g.Memory); err != nil {
		return err
	}
	if old != nil {
		old.Guest = g
		t.follow(now, old)
		t.release(now, old)
		return nil
	}
	t.lastGID = id
	t.guests[name] = next
	return nil
}

// admit has the queue know a guest, with a limit in bytes.
func (t *Table) admit(now time.Duration, g *guest, memory uint64) error {
	return t.queue.Admit(now, g.id, place.Guest{Weight: g.Weight, Memory: memory, Guarantee: g.Guarantee, GPUs: g.GPUs, Urgent: g.Urgent})
}

// Check returns an error if no GPU could hold a guest's limit.
func (t *Table) Check(memory uint64) error {
	if most := t.largest(); memory > most {
		return fmt.Errorf("limit of %d bytes: the largest GPU has %d: %w", memory, most, place.ErrNoGPU)
	}
	return nil
}

// Remove removes a guest with its tasks.
func (t *Table) Remove(now time.Duration, name string) {
	g := t.guests[name]
	if g == nil {
		return
	}
	t.queue.Remove(now, g.id)
	delete(t.guests, name)
	t.forgetRefused(func(k Key) bool { return k.Guest == name })
	for _, x := range slices.Clone(t.order) {
		if x.of == g {
			t.forget(x)
		}
	}
}

// forget removes a task that the queue does not have.
func (t *Table) forget(x *task) {
	delete(t.byID, x.id)
	delete(t.byKey, x.key)
	t.order = slices.DeleteFunc(t.order, func(o *task) bool { return o == x })
	x.of.held = slices.DeleteFunc(x.of.held, func(o *task) bool { return o == x })
}

// ErrUnknownGuest is a task of a guest that was not admitted, and ErrExists one that is there
// already.
var (
	ErrUnknownGuest = errors.New("the guest is not known to float")
	ErrExists       = errors.New("the task exists already")
)

// Submit adds a task. Decide says what becomes of it.
func (t *Table) Submit(now time.Duration, k Key, r Request) error {
	x, err := t.add(now, k, r)
	if err != nil {
		return err
	}
	t.bound(x)
	x.first = x.req.Memory
	switch {
	case x.req.Memory > x.of.Memory:
		t.refuse(x, abi.ErrorLimit)
	case len(x.of.held) > 0:
		t.hold(x)
	default:
		t.submit(now, x)
	}
	return nil
}

// bound has a task that asks for its guest's whole limit ask for what that is now, and for no more than
// a GPU has for it. One that has left a GPU asks for what it had.
func (t *Table) bound(x *task) {
	if x.req.Whole && x.left == 0 {
		x.req.Memory = t.whole(x.of)
	}
}

// whole returns what a task asks for that asks for its guest's whole limit.
func (t *Table) whole(g *guest) uint64 {
	return min(g.Memory, max(t.largest()-min(g.Own, t.largest()), 1))
}

// follow tells the queue what a guest's tasks ask for now that ask for its whole limit and wait there.
func (t *Table) follow(now time.Duration, g *guest) {
	for _, x := range t.order {
		if x.of != g || !x.req.Whole || x.placed || x.held || x.left > 0 || x.req.Memory == t.whole(g) {
			continue
		}
		// It is the only one that the queue has of its guest, and the queue has admitted the limit.
		if _, err := t.queue.Grow(now, x.id, t.whole(g)+g.Own); err == nil {
			t.bound(x)
			x.first = x.req.Memory
		}
	}
}

// largest returns the memory of the largest GPU.
func (t *Table) largest() (most uint64) {
	for _, s := range t.gpus {
		most = max(most, s.Memory)
	}
	return most
}

// submit gives a task to the queue, or holds or refuses it. It reports whether the queue has it.
func (t *Table) submit(now time.Duration, x *task) bool {
	err := t.queue.Submit(now, x.id, x.of.id, x.request())
	switch {
	case err == nil:
		return true
	case errors.Is(err, place.ErrLimit):
		t.hold(x)
	default:
		t.refuse(x, abi.ErrorNoRoom)
	}
	return false
}

// request returns a task's request as the queue has it.
func (x *task) request() place.Request {
	r := &x.req
	return place.Request{Memory: r.Memory + x.of.Own, Own: x.of.Own, Blocks: uint64(r.Blocks), Threads: r.Threads, Last: x.of.last, Had: x.left > 0}
}

func (t *Table) add(now time.Duration, k Key, r Request) (*task, error) {
	g := t.guests[k.Guest]
	if g == nil {
		return nil, fmt.Errorf("guest %q: %w", k.Guest, ErrUnknownGuest)
	}
	if t.byKey[k] != nil {
		return nil, fmt.Errorf("context %d of guest %q: %w", k.Slot, k.Guest, ErrExists)
	}
	t.lastID++
	x := &task{id: t.lastID, key: k, req: r, of: g, asked: now, to: noGPU}
	t.byID[x.id], t.byKey[k] = x, x
	t.order = append(t.order, x)
	return x, nil
}

// hold has a task wait for others of its guest.
func (t *Table) hold(x *task) {
	if !x.held {
		x.held = true
		x.of.held = append(x.of.held, x)
	}
}

// refuse ends a task that never gets a GPU.
func (t *Table) refuse(x *task, code abi.ErrorCode) {
	t.forget(x)
	t.forgetRefused(func(k Key) bool { return k.Guest == x.key.Guest && k.Slot == x.key.Slot })
	t.refused = append(t.refused, Decision{Key: x.key, Code: code})
}

// forgetRefused forgets what was refused and not told. A guest has one context in a slot at a time, and
// waits for no answer about an earlier one, of which it may send any number.
func (t *Table) forgetRefused(of func(Key) bool) {
	t.refused = slices.DeleteFunc(t.refused, func(d Decision) bool { return of(d.Key) })
}

// release gives the queue what its guest held, as far as the guest's limit allows now.
func (t *Table) release(now time.Duration, g *guest) {
	for len(g.held) > 0 {
		x := g.held[0]
		t.bound(x)
		if x.left == 0 {
			x.first = x.req.Memory
		}
		if x.req.Memory > g.Memory && x.left == 0 { // the limit was lowered
			t.refuse(x, abi.ErrorLimit)
			continue
		}
		if !t.submit(now, x) {
			if x.held && len(g.held) > 0 && g.held[0] == x {
				return
			}
			continue // it was refused
		}
		x.held = false
		g.held = g.held[1:]
	}
}

// Adopt adds a task that an earlier daemon placed, and that had left a GPU so many times before.
func (t *Table) Adopt(now time.Duration, k Key, first uint64, r Request, gpu int, waited time.Duration, left uint32) error {
	x, err := t.add(now, k, r)
	if err != nil {
		return err
	}
	q := x.request()
	err = t.queue.Adopt(now, x.id, x.of.id, q, gpu)
	if errors.Is(err, place.ErrNoGPU) && q.Own > 0 { // it was placed before the driver's memory counted
		q.Memory, q.Own = r.Memory, 0
		err = t.queue.Adopt(now, x.id, x.of.id, q, gpu)
	}
	if err != nil {
		t.forget(x)
		return err
	}
	x.of.last = gpu + 1
	x.placed, x.gpu, x.granted, x.waited, x.asked = true, gpu, r.Memory, waited, now-waited
	x.first, x.left = first, left
	return nil
}

// Free removes a task that has ended, or waits no more. It does nothing if there is none.
func (t *Table) Free(now time.Duration, k Key) {
	x := t.byKey[k]
	if x == nil {
		return
	}
	t.free(now, x)
}

// FreeSlot removes what task there is in a guest's slot.
func (t *Table) FreeSlot(now time.Duration, guest string, slot int) {
	for _, x := range slices.Clone(t.order) {
		if x.key.Guest == guest && x.key.Slot == slot {
			t.free(now, x)
		}
	}
}

func (t *Table) free(now time.Duration, x *task) {
	if !x.held {
		_ = t.queue.Free(now, x.id) // the queue has it
	}
	t.forget(x)
	t.release(now, x.of)
}

// Began counts the wait of a task that Decide placed, once that was carried out. It is not counted
// before, since a count never goes back.
func (t *Table) Began(d *Decision) {
	if d.Left == 0 && d.Before == 0 {
		t.waits.add(d.Waited)
	}
}

// Undo has a task that Decide placed wait again, since it could not be carried out. One that had left a
// GPU before asks for what it had there, whatever its guest's limit is now.
func (t *Table) Undo(now time.Duration, k Key) {
	x := t.byKey[k]
	if x == nil || !x.placed {
		return
	}
	if x.left > 0 && t.queue.Left(now, x.id) == nil {
		x.placed, x.granted, x.leaves, x.to, x.why, x.told = false, 0, false, noGPU, place.NoReason, false
		return
	}
	t.free(now, x)
	if err := t.Submit(now, k, x.req); err != nil {
		return // its guest is gone
	}
	if again := t.byKey[k]; again != nil { // else it was refused: the guest's limit was lowered
		again.asked, again.first = x.asked, x.first
	}
}

// Decide places what has room at now. gpus are the host's.
func (t *Table) Decide(now time.Duration, gpus []GPU) []Decision {
	ds := append(t.refused, t.recalled...)
	t.refused, t.recalled = nil, nil
	t.expire(now)
	open := t.apply(gpus)
	t.actions = t.queue.Begin(now, t.actions[:0])
	for _, a := range t.actions {
		x := t.byID[a.Task]
		switch {
		case x == nil:
		case a.Kind == place.Begin:
			x.of.last = a.GPU + 1
			ds = append(ds, t.placeOn(now, x, a.GPU, a.Memory))
		case a.Kind == place.Grow, a.Kind == place.Refuse && x.placed:
			ds = append(ds, x.grown(a.Memory))
		case a.Kind == place.Move, a.Kind == place.Leave:
			ds = t.tellToLeave(now, x, &a, ds)
		case a.Kind == place.Refuse:
			t.forget(x)
			ds = append(ds, Decision{Key: x.key, Code: abi.ErrorNoRoom})
		}
	}
	for _, x := range t.order {
		if x.placed || t.parked(x) {
			continue
		}
		if why := t.why(x, open); !x.told || why != x.reason {
			x.told, x.reason = true, why
			ds = append(ds, Decision{Key: x.key, Reason: why})
		}
	}
	ds = t.recall(now, ds)
	t.apply(nil)
	return t.settle(now, ds)
}

// apply has the queue know what of the GPUs is not for tasks; nil is nothing. Memory of guests outside
// of the queue keeps tasks waiting and is no reason to refuse one, so the queue knows of it only while
// it decides. It reports which GPUs are open.
func (t *Table) apply(gpus []GPU) (open place.Set) {
	if gpus != nil {
		t.outside = append(t.outside[:0], gpus...)
	}
	all := t.queue.GPUs()
	for i := range all {
		d := &all[i]
		d.Pinned, d.PinnedGuarantee = 0, 0
		if i >= len(gpus) {
			continue
		}
		d.Busy = gpus[i].Busy
		if gpus[i].Closed {
			d.Pinned = d.Memory // nothing is left, whatever its tasks have
			continue
		}
		d.Pinned, d.PinnedGuarantee = min(gpus[i].Pinned, d.Memory), gpus[i].PinnedGuarantee
		open = open.With(i)
	}
	return open
}

// why returns why a task waits.
func (t *Table) why(x *task, open place.Set) abi.WaitReason {
	if x.held {
		return abi.WaitGuest
	}
	if may := x.of.GPUs; may != 0 {
		open &= may
	}
	if open == 0 {
		return abi.WaitGPU
	}
	gpus := t.queue.GPUs()
	for i := range gpus {
		if open.Has(i) && gpus[i].Free() >= x.req.Memory+x.of.Own {
			return abi.WaitQueue
		}
	}
	return abi.WaitMemory
}

// Next returns when Decide is to be called at the latest if nothing else happens. ok reports whether
// it has to be called at all.
func (t *Table) Next(now time.Duration) (at time.Duration, ok bool) {
	at, ok = t.queue.Next(now)
	for i := range t.delayed {
		if until, short := t.short(now, t.delayed[i].GPU); short && (!ok || until < at) {
			at, ok = until, true
		}
	}
	return at, ok
}
