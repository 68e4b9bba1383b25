package tasks

import (
	"cmp"
	"slices"
	"time"
)

// Tasks returns all tasks at now, in order of asking.
func (t *Table) Tasks(now time.Duration) []Task {
	all := make([]Task, len(t.order))
	for i, x := range t.order {
		all[i] = x.view()
		if !x.placed {
			all[i].GPU, all[i].Waited = noGPU, max(now-x.asked, 0)
		}
		if v, ok := t.queue.Task(x.id); ok {
			all[i].State, all[i].Warps, all[i].Passed = v.State, v.Warps, v.Passed
		}
	}
	return all
}

// view returns what is to be seen of a task.
func (x *task) view() Task {
	return Task{
		Key: x.key, Request: x.req, Placed: x.placed, GPU: x.gpu, Reason: x.reason, First: x.first, Granted: x.granted, OnHost: x.onHost, Why: x.why,
		Left: x.left, Asked: x.asked, Waited: x.waited,
	}
}

// Placed returns the tasks of a guest that are on GPUs, in order of their slots.
func (t *Table) Placed(guest string) (all []Task) {
	for _, x := range t.order {
		if x.placed && x.key.Guest == guest {
			all = append(all, x.view())
		}
	}
	slices.SortFunc(all, func(a, b Task) int { return cmp.Compare(a.Key.Slot, b.Key.Slot) })
	return all
}

// Away returns the tasks of a guest that have left their GPUs, in order of their slots. Each asks for what
// it had there.
func (t *Table) Away(guest string) (all []Task) {
	for _, x := range t.order {
		if !x.placed && x.left > 0 && x.key.Guest == guest {
			all = append(all, x.view())
		}
	}
	slices.SortFunc(all, func(a, b Task) int { return cmp.Compare(a.Key.Slot, b.Key.Slot) })
	return all
}

// On reports how many tasks of a guest are on a GPU or on their way there, and their memory in bytes.
func (t *Table) On(guest string, gpu int) (n int, memory uint64) {
	for _, x := range t.order {
		if x.placed && x.key.Guest == guest && x.gpu == gpu {
			n++
			memory += x.granted + x.of.Own
		}
		if v, ok := t.queue.Task(x.id); ok && x.leaves && x.to == gpu && x.key.Guest == guest {
			n++
			memory += v.Wants
		}
	}
	return n, memory
}

// Granted returns the memory in bytes that tasks have on a GPU.
func (t *Table) Granted(gpu int) uint64 { return t.queue.GPUs()[gpu].Granted() }

// Waits returns for how long tasks waited that have begun.
func (t *Table) Waits() Waits { return t.waits }
