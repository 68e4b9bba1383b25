package place

import (
	"fmt"
	"slices"
	"time"
)

// Grow has a task ask for memory bytes in all. granted reports whether it has them at once;
// otherwise an [Action] tells. Less than it has is given back at once. A task that waits for a GPU
// waits for one with that much.
func (q *Queue) Grow(now time.Duration, id TaskID, memory uint64) (granted bool, err error) {
	t := q.tasks[id]
	switch {
	case t == nil:
		return false, fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	case memory == 0:
		return false, fmt.Errorf("place: task %d: %w", id, ErrEmpty)
	case t.state != Placed && t.state != Waiting && t.state != Parked:
		return false, fmt.Errorf("place: task %d is %v: %w", id, t.state, ErrState)
	case !q.possible(t.guest, memory):
		return false, fmt.Errorf("place: task %d: %d bytes: %w", id, memory, ErrNoGPU)
	}
	g, want := t.guest, t.req
	want.Memory = memory
	others := g.asked - t.req.counted()
	if want.counted() > g.Memory-min(others, g.Memory) {
		return false, fmt.Errorf("place: task %d: %d bytes beside %d of %d: %w", id, memory, others, g.Memory, ErrLimit)
	}
	g.asked = others + want.counted()
	t.req = want
	if t.state != Placed {
		return false, nil
	}
	if memory <= t.grant {
		q.grant(now, t, memory)
		return true, nil
	}
	if more := memory - t.grant; more <= q.gpus[t.gpu].Free() && !q.othersGrow(t.gpu) {
		q.grant(now, t, memory)
		return true, nil
	}
	t.state, t.since = Growing, now
	q.growing = append(q.growing, t)
	return false, nil
}

// othersGrow reports whether a task of a GPU waits for more memory.
func (q *Queue) othersGrow(gpu int) bool {
	return slices.ContainsFunc(q.growing, func(t *task) bool { return t.gpu == gpu })
}

// grow serves tasks that wait for more memory: where they are, on another GPU, or from the host.
func (q *Queue) grow(now time.Duration, as []Action) []Action {
	if len(q.growing) == 0 {
		return as
	}
	still := q.growing[:0]
	for _, t := range q.growing {
		if t.req.Memory-t.grant <= q.gpus[t.gpu].Free() {
			q.grant(now, t, t.req.Memory)
			t.state = Placed
			as = append(as, Action{Kind: Grow, Task: t.id, GPU: t.gpu, Memory: t.grant})
		} else if to, ok := q.roomFor(t); ok && q.mayLeave(now, t) {
			q.move(now, t, to)
			as = append(as, Action{Kind: Move, Task: t.id, GPU: to, Memory: t.grant, Why: Growth})
		} else if now-t.since >= q.cfg.Patience && q.mayLeave(now, t) {
			as = append(as, q.depart(now, t, Growth))
		} else {
			still = append(still, t)
		}
	}
	clear(q.growing[len(still):])
	q.growing = still
	return q.unstick(now, as)
}

// roomFor returns another GPU that has all that a growing task wants.
func (q *Queue) roomFor(t *task) (int, bool) {
	q.measure()
	avail := q.avail[t.gpu]
	q.avail[t.gpu] = 0
	to, ok := q.place(t)
	q.avail[t.gpu] = avail
	return to, ok
}

// move gives a task all that it wants on another GPU.
func (q *Queue) move(now time.Duration, t *task, to int) {
	q.vacate(t, t.gpu)
	t.state, t.from, t.left = Moving, t.gpu, t.grant
	t.gpu, t.grant = to, 0
	q.grant(now, t, t.req.Memory)
	q.occupy(t, &q.gpus[to])
}

// depart tells a task to leave for the host.
func (q *Queue) depart(now time.Duration, t *task, why Why) Action {
	t.state, t.since, t.why, t.by = Leaving, now, why, nil
	return Action{Kind: Leave, Task: t.id, GPU: t.gpu, Memory: t.grant, Why: why}
}

// unstick has the smallest task leave each GPU whose tasks all wait for more memory. If none can, the
// smallest gets no more.
func (q *Queue) unstick(now time.Duration, as []Action) []Action {
	for gpu := range q.gpus {
		var smallest, stuck *task
		waiting := 0
		for _, t := range q.growing {
			if t.gpu != gpu {
				continue
			}
			waiting++
			if q.mayLeave(now, t) {
				if smallest == nil || t.grant < smallest.grant {
					smallest = t
				}
			} else if stuck == nil || t.grant < stuck.grant {
				stuck = t
			}
		}
		// Memory on its way off the GPU is waited for first.
		if waiting == 0 || waiting < len(q.gpus[gpu].tasks) || q.awaited(gpu) {
			continue
		}
		if smallest == nil {
			as = append(as, Action{Kind: Refuse, Task: stuck.id, GPU: gpu, Memory: stuck.grant})
			q.stopGrowing(stuck)
			continue
		}
		q.growing = slices.DeleteFunc(q.growing, func(t *task) bool { return t == smallest })
		as = append(as, q.depart(now, smallest, Growth))
	}
	return as
}

// stopGrowing has a task want no more than it has.
func (q *Queue) stopGrowing(t *task) {
	q.growing = slices.DeleteFunc(q.growing, func(o *task) bool { return o == t })
	t.guest.asked -= t.req.counted()
	t.req.Memory, t.state = t.grant, Placed
	t.guest.asked += t.req.counted()
}

// awaited reports whether a task is about to give up memory on a GPU.
func (q *Queue) awaited(gpu int) bool {
	for i := range q.gpus {
		for _, t := range q.gpus[i].tasks {
			if t.state == Moving && t.from == gpu {
				return true
			}
		}
	}
	return false
}

// taskIn returns a task, which has to be in a state.
func (q *Queue) taskIn(id TaskID, s State) (*task, error) {
	t := q.tasks[id]
	if t == nil {
		return nil, fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	}
	if t.state != s {
		return nil, fmt.Errorf("place: task %d is %v: %w", id, t.state, ErrState)
	}
	return t, nil
}

// Moved tells that a task has left the GPU that it had before its [Move].
func (q *Queue) Moved(now time.Duration, id TaskID) error {
	t, err := q.taskIn(id, Moving)
	if err != nil {
		return err
	}
	q.leave(now, t)
	t.state = Placed
	return nil
}

// Left tells that the memory of a task is on the host, whether it was told to leave or not. The task
// waits for a GPU, or is parked if it is quiet and did not leave for more memory. A guest for which it
// left is charged for the memory since then.
func (q *Queue) Left(now time.Duration, id TaskID) error {
	t := q.tasks[id]
	if t == nil {
		return fmt.Errorf("place: task %d: %w", id, ErrUnknown)
	}
	if t.state == Waiting || t.state == Parked {
		return fmt.Errorf("place: task %d is %v: %w", id, t.state, ErrState)
	}
	grows := t.state == Growing || t.state == Leaving && t.why == Growth
	if by := t.by; t.state == Leaving && by != nil && q.guests[by.id] == by {
		q.bill(now, t, by)
	}
	q.takeOff(now, t)
	t.by = nil
	if t.quiet && !grows {
		t.state, t.since = Parked, now
	} else {
		q.wait(now, t)
	}
	return nil
}

// bill charges another guest for what a task had on its GPU since it was told to leave.
func (q *Queue) bill(now time.Duration, t *task, by *guest) {
	t.guest.charge(now)
	by.charge(now)
	cost := float64(t.grant) * (now - t.since).Seconds()
	t.guest.used -= cost / t.guest.Weight
	by.used += cost / by.Weight
}
