package tasks

import (
	"cmp"
	"time"

	"vgpud/fairshare/place"
)

// Moves counts tasks that left their GPU, by why.
type Moves map[place.Why]uint64

// Moves returns how many tasks left their GPU because they were told to.
func (t *Table) Moves() Moves {
	m := make(Moves, len(t.moves))
	for why, n := range t.moves {
		m[why] = n
	}
	return m
}

// placeOn records that a task is on a GPU, with memory bytes of it.
func (t *Table) placeOn(now time.Duration, x *task, gpu int, memory uint64) Decision {
	x.placed, x.gpu, x.waited = true, gpu, now-x.asked
	x.granted, x.onHost, x.leaves, x.to, x.why = memory-min(x.of.Own, memory), 0, false, noGPU, place.NoReason
	d := Decision{Key: x.key, GPU: gpu, Granted: x.granted, Left: x.left, Want: x.want}
	x.want = 0
	t.claim(x)
	if x.left == 0 {
		d.Waited = x.waited
	}
	return d
}

// grown records what a task has that asked for more memory.
func (x *task) grown(memory uint64) Decision {
	before := x.granted
	x.granted = memory - min(x.of.Own, memory)
	x.req.Memory = x.granted
	d := Decision{Key: x.key, GPU: x.gpu, Granted: x.granted, Waited: x.waited, Left: x.left, Want: x.want, Before: before}
	x.want = 0
	return d
}

// Shrink takes back what a task got more, since it could not be carried out.
func (t *Table) Shrink(now time.Duration, k Key, before uint64) {
	x := t.byKey[k]
	if x == nil || !x.placed || before >= x.granted {
		return
	}
	if _, err := t.queue.Grow(now, x.id, before+x.of.Own); err == nil {
		x.granted, x.req.Memory = before, before
	}
}

// tellToLeave has a task leave its GPU, unless the host has no room for it.
func (t *Table) tellToLeave(now time.Duration, x *task, a *place.Action, ds []Decision) []Decision {
	if t.isDelayed(x) {
		_ = t.queue.Stayed(now, x.id) // it does not know yet that it is there
		return ds
	}
	if bound := x.of.OnHost; bound > 0 {
		sum := x.granted
		for _, o := range t.order {
			if o.of == x.of {
				sum += o.onHost
				if o.leaves {
					sum += o.granted
				}
			}
		}
		if sum > bound {
			_ = t.queue.Stayed(now, x.id) // it was told to leave just now
			return ds
		}
	}
	x.leaves, x.to, x.why, x.toldToLeave = true, noGPU, a.Why, now
	if a.Kind == place.Move {
		x.to = a.GPU
	}
	return append(ds, Decision{Key: x.key, GPU: x.gpu, Leave: true, Why: a.Why})
}

// A task has leaveLimit to leave its GPU, and a second more for each leaveRate bytes, which are copied. Its
// guest decides when it is quiet, and may never let it be. The task may leave later all the same.
const (
	leaveLimit = 30 * time.Second
	leaveRate  = 256 << 20
)

// expire has tasks stay that were told to leave and did not.
func (t *Table) expire(now time.Duration) {
	for _, x := range t.order {
		if x.leaves && now-x.toldToLeave >= leaveLimit+time.Duration(x.granted/leaveRate)*time.Second {
			t.Stayed(now, x.key)
		}
	}
}

// Left records that a task has left its GPU, for the given time, and has bytes of the host's memory.
// wants reports whether it has something to do. ok reports whether the task goes on at once on the GPU
// of the decision; otherwise it waits for one. A task may have left without having been told to: then
// an earlier daemon told it, or what should make it anew has died.
func (t *Table) Left(now time.Duration, k Key, times uint32, bytes uint64, wants bool) (d Decision, ok bool) {
	x := t.byKey[k]
	if x == nil || times <= x.left {
		return d, false
	}
	x.left = times
	if !x.placed {
		x.onHost = bytes
		t.rest(now, x, wants)
		return d, false
	}
	_ = t.queue.SetQuiet(now, x.id, !wants)
	if x.leaves {
		if t.moves == nil {
			t.moves = make(Moves)
		}
		t.moves[x.why]++
	}
	if x.to != noGPU && t.queue.Moved(now, x.id) == nil {
		v, _ := t.queue.Task(x.id)
		x.req.Memory = v.Wants - min(x.of.Own, v.Wants)
		d = t.placeOn(now, x, x.to, v.Memory)
		return d, t.settleOne(now, &d)
	}
	if err := t.queue.Left(now, x.id); err != nil {
		return d, false // it is not on a GPU
	}
	if x.want > 0 {
		v, _ := t.queue.Task(x.id)
		x.req.Memory = v.Wants - min(x.of.Own, v.Wants)
	}
	x.placed, x.granted, x.onHost, x.leaves, x.to, x.why = false, 0, bytes, false, noGPU, place.NoReason
	x.asked, x.told = now, false
	return d, false
}

// Away is a context that left its GPU before this daemon came.
type Away struct {
	// Times is how often it has left a GPU, and OnHost the bytes of the host's memory that it has.
	Times  uint32
	OnHost uint64
	// Had is what it was granted on its GPU in bytes, as its guest's process says: it goes on with no
	// less. 0 is not known. Saved is what an earlier daemon saved of that; 0 is nothing.
	Had, Saved uint64
	// Wants reports whether it has something to do.
	Wants bool
}

// Return adds a task that an earlier daemon had placed, and that has left its GPU since. It asks for
// what it had: within its guest's limit, or for what was saved if that is more, since a lowered limit
// takes nothing away.
func (t *Table) Return(now time.Duration, k Key, r Request, a Away) error {
	x, err := t.add(now, k, r)
	if err != nil {
		return err
	}
	t.bound(x)
	x.first, x.left, x.onHost = x.req.Memory, max(a.Times, 1), a.OnHost
	x.req.Memory = min(cmp.Or(a.Had, a.Saved, x.first), max(t.whole(x.of), a.Saved))
	if len(x.of.held) > 0 {
		t.hold(x)
	} else if t.submit(now, x) {
		t.rest(now, x, a.Wants)
	}
	return nil
}

// rest has a task that waits want no GPU unless it has something to do.
func (t *Table) rest(now time.Duration, x *task, wants bool) {
	if x.held {
		return
	}
	if wants {
		_ = t.queue.SetQuiet(now, x.id, false)
	} else {
		_ = t.queue.Park(now, x.id)
	}
}

// Stayed records that a task can't leave its GPU as it was told to. It asks again for more memory if it
// did meanwhile.
func (t *Table) Stayed(now time.Duration, k Key) {
	x := t.byKey[k]
	if x == nil || !x.leaves {
		return
	}
	_ = t.queue.Stayed(now, x.id) // it was told to leave
	x.leaves, x.to, x.why = false, noGPU, place.NoReason
}

// Wants records that a task that has left its GPU has something to do.
func (t *Table) Wants(now time.Duration, k Key) {
	x := t.byKey[k]
	if x == nil || x.placed || x.held {
		return
	}
	if t.parked(x) {
		x.asked, x.told = now, false
	}
	_ = t.queue.SetQuiet(now, x.id, false)
}

// SetQuiet records whether a task that is on a GPU has nothing to do.
func (t *Table) SetQuiet(now time.Duration, k Key, quiet bool) {
	if x := t.byKey[k]; x != nil && x.placed {
		_ = t.queue.SetQuiet(now, x.id, quiet)
	}
}

// parked reports whether a task wants no GPU.
func (t *Table) parked(x *task) bool {
	v, ok := t.queue.Task(x.id)
	return ok && !x.held && v.State == place.Parked
}

// moreAtOnce is what a task gets beyond what it asks for where there is room: a part of what it has.
const moreAtOnce = 8

// Grow has a task that is on a GPU, and not told to leave it, ask for memory bytes in all. gpus are the host's. ok reports whether
// the decision answers it: the task has that much, or never gets it. Otherwise a decision comes later.
func (t *Table) Grow(now time.Duration, k Key, memory uint64, gpus []GPU) (d Decision, ok bool) {
	x := t.byKey[k]
	if x == nil || !x.placed || x.leaves || x.want > 0 {
		return d, false
	}
	x.want = memory
	if memory <= x.granted || memory > x.of.Memory { // which bounds the sums below, too
		return x.grown(x.granted + x.of.Own), true
	}
	t.apply(gpus)
	defer t.apply(nil)
	more := memory + x.granted/moreAtOnce
	if more > x.of.Memory || more-x.granted > t.queue.GPUs()[x.gpu].Free() {
		more = memory
	}
	for _, n := range []uint64{more, memory} {
		granted, err := t.queue.Grow(now, x.id, n+x.of.Own)
		switch {
		case granted:
			d = x.grown(n + x.of.Own)
			return d, t.settleOne(now, &d)
		case err == nil:
			return d, false
		}
	}
	return x.grown(x.granted + x.of.Own), true
}
