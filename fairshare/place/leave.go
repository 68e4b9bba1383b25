package place

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vgpud/fairshare"
)

// SetQuiet sets whether a task is quiet: it executes nothing and has nothing queued. A parked task
// that is not quiet any more waits for a GPU.
func (q *Queue) SetQuiet(now time.Duration, id TaskID, quiet bool) error {
	t := q.tasks[id]
	if t == nil {
		return fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	}
	if quiet && !t.quiet {
		t.quietSince = now
	}
	t.quiet = quiet
	if t.state == Parked && !quiet {
		q.wait(now, t)
	}
	return nil
}

// Stayed tells that a task can't leave or move as it was told to. It has what it had before, and is not
// told to again for as long as others may pass a task.
func (q *Queue) Stayed(now time.Duration, id TaskID) error {
	t := q.tasks[id]
	if t == nil {
		return fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	}
	growing := t.req.Memory > t.grant
	switch t.state {
	case Moving:
		q.back(now, t)
	case Leaving:
		t.state, t.since, t.by = Placed, now, nil
		if growing {
			t.state = Growing
			q.growing = append(q.growing, t)
		}
	default:
		return fmt.Errorf("place: task %d is %v: %w", id, t.state, ErrState)
	}
	t.stays, t.stayed = true, now
	return nil
}

// mayLeave reports whether a task may be told to leave or to move.
func (q *Queue) mayLeave(now time.Duration, t *task) bool {
	return !t.stays || now-t.stayed >= q.cfg.Patience
}

// leavesAt returns when a task may be told to leave that would be at an instant.
func (q *Queue) leavesAt(t *task, at time.Duration) time.Duration {
	if t.stays {
		return max(at, t.stayed+q.cfg.Patience)
	}
	return at
}

// Park has a task that waits want nothing until it is not quiet any more: its memory is on the host,
// and it executes nothing.
func (q *Queue) Park(now time.Duration, id TaskID) error {
	t, err := q.taskIn(id, Waiting)
	if err != nil {
		return err
	}
	q.unwait(now, t)
	if g := t.guest; len(g.waiting) == 0 {
		q.order = slices.DeleteFunc(q.order, func(o *guest) bool { return o == g })
	}
	t.state, t.since, t.quiet, t.quietSince = Parked, now, true, now
	return nil
}

// Lose tells that a GPU fell off, with all that was there. It returns the tasks that are gone with it,
// in order of their numbers. Their callers may submit them again. The next Begin refuses a task that
// no other GPU can hold.
func (q *Queue) Lose(now time.Duration, gpu int) []TaskID {
	q.gpus[gpu].lost, q.shrunk = true, true
	for _, t := range slices.Clone(q.kept[gpu]) {
		q.unkeep(t)
	}
	var gone []TaskID
	var back []*task
	for _, t := range q.tasks {
		switch {
		case t.state == Waiting || t.state == Parked:
		case t.state == Moving && t.gpu == gpu:
			back = append(back, t)
		case t.gpu == gpu || t.state == Moving && t.from == gpu:
			gone = append(gone, t.id)
		}
	}
	slices.SortFunc(back, func(a, b *task) int { return cmp.Compare(a.seq, b.seq) })
	for _, t := range back {
		q.back(now, t)
	}
	slices.Sort(gone)
	for _, id := range gone {
		q.remove(now, q.tasks[id])
	}
	return gone
}

// back has a task that moves stay where it was, and wait for memory there.
func (q *Queue) back(now time.Duration, t *task) {
	q.vacate(t, t.gpu)
	q.grant(now, t, 0)
	t.gpu, t.grant, t.left = t.from, t.left, 0
	q.occupy(t, &q.gpus[t.gpu])
	t.state, t.since = Growing, now
	q.growing = append(q.growing, t)
}

// Return tells that a GPU that was lost is there again.
func (q *Queue) Return(gpu int) { q.gpus[gpu].lost = false }

// refuse ends what no GPU could hold any more.
func (q *Queue) refuse(now time.Duration, as []Action) []Action {
	if !q.shrunk {
		return as
	}
	q.shrunk = false
	first := len(as)
	for _, t := range q.tasks {
		if q.possible(t.guest, t.req.Memory) {
			continue
		}
		switch t.state {
		case Waiting, Parked:
			as = append(as, Action{Kind: Refuse, Task: t.id, GPU: -1})
		case Growing:
			as = append(as, Action{Kind: Refuse, Task: t.id, GPU: t.gpu, Memory: t.grant})
		}
	}
	slices.SortFunc(as[first:], func(a, b Action) int { return cmp.Compare(a.Task, b.Task) })
	for _, a := range as[first:] {
		t := q.tasks[a.Task]
		if t.state != Growing {
			q.remove(now, t)
			continue
		}
		q.stopGrowing(t)
	}
	return as
}

// makeRoom has tasks leave a GPU so that t, which does not fit, can begin there: for an urgent
// guest those of others, otherwise those that were idle for long. Of several GPUs it takes the one
// where the fewest bytes leave. It then keeps the memory for t.
func (q *Queue) makeRoom(now time.Duration, t *task, as []Action) []Action {
	if t.guest.Urgent && t.kept >= 0 && q.onItsWay(t) {
		return as
	}
	var best []*task
	gpu, least := -1, uint64(0)
	for i := range q.gpus {
		if !q.could(i, t.guest, t.req.Memory) {
			continue
		}
		leaving, sum, ok := q.leavers(now, i, t)
		if ok && (gpu < 0 || sum < least) {
			best, gpu, least = leaving, i, sum
		}
	}
	if gpu < 0 {
		return as
	}
	why := IsIdle
	if t.guest.Urgent {
		why = ForUrgent
	}
	for _, o := range best {
		as = append(as, q.depart(now, o, why))
		if why == ForUrgent {
			o.by = t.guest
		}
	}
	if t.kept >= 0 && t.kept != gpu {
		q.unkeep(t)
	}
	if t.kept < 0 {
		q.keep(t, gpu)
	}
	return as
}

// onItsWay reports whether there is enough for t where memory is kept for it once those have left that
// were told to. It was when they were told, but a task may stay.
func (q *Queue) onItsWay(t *task) bool {
	there := q.gpus[t.kept].Free()
	for _, o := range q.gpus[t.kept].tasks {
		if o.state == Leaving {
			there += o.grant
		}
	}
	return t.req.Memory+q.keptFor(t.kept, t) <= there
}

// leavers returns the tasks that have to leave a GPU for t, largest first, and their bytes. ok
// reports whether that is enough.
func (q *Queue) leavers(now time.Duration, gpu int, t *task) (leaving []*task, sum uint64, ok bool) {
	free, kept := q.gpus[gpu].Free(), q.keptFor(gpu, t)
	need := t.req.Memory + kept
	if need <= free {
		return nil, 0, false // it lacks something else
	}
	need -= free
	var may []*task
	for _, o := range q.gpus[gpu].tasks {
		if o.state == Leaving {
			need -= min(need, o.grant) // on its way
		}
		if o.state == Placed && q.mayLeave(now, o) && (o.quiet && now-o.quietSince >= q.cfg.Idle || t.guest.Urgent && !o.guest.Urgent) {
			may = append(may, o)
		}
	}
	if need == 0 {
		return nil, 0, false
	}
	slices.SortFunc(may, func(a, b *task) int {
		return cmp.Or(cmp.Compare(b.grant, a.grant), cmp.Compare(a.id, b.id))
	})
	for _, o := range may {
		if sum >= need {
			break
		}
		leaving = append(leaving, o)
		sum += o.grant
	}
	return leaving, sum, sum >= need
}

// View is what is to be seen of a task.
type View struct {
	ID    TaskID
	Guest fairshare.GuestID
	State State
	// GPU is where it is, or -1.
	GPU int
	// Memory is what it was granted on all GPUs, and Wants what it wants to have.
	Memory, Wants uint64
	// Warps are its resident warps where it is placed.
	Warps uint64
	// Since is when it got into its state.
	Since time.Duration
	// Passed is how many tasks began that were behind it, and KeptOn the GPU where memory is kept for
	// it, or -1.
	Passed, KeptOn int
	// Why is why it leaves.
	Why Why
}

// Tasks returns all tasks in order of submission.
func (q *Queue) Tasks() []View {
	ts := make([]*task, 0, len(q.tasks))
	for _, t := range q.tasks {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b *task) int { return cmp.Compare(a.seq, b.seq) })
	vs := make([]View, len(ts))
	for i, t := range ts {
		vs[i] = q.view(t)
	}
	return vs
}

// Task returns a task.
func (q *Queue) Task(id TaskID) (View, bool) {
	t := q.tasks[id]
	if t == nil {
		return View{}, false
	}
	return q.view(t), true
}

func (q *Queue) view(t *task) View {
	v := View{
		ID: t.id, Guest: t.guest.id, State: t.state, GPU: -1, Memory: t.grant + t.left, Wants: t.req.Memory,
		Since: t.since, Passed: t.passedBy, KeptOn: t.kept,
	}
	if t.state != Waiting && t.state != Parked {
		v.GPU, v.Warps = t.gpu, q.gpus[t.gpu].residentWarps(&t.req)
	}
	if t.state == Leaving {
		v.Why = t.why
	}
	return v
}
