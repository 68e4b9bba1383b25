package daemon

import (
	"slices"
	"strings"

	taskplace "vgpud/fairshare/place"
	"vgpud/mediator/api"
	"vgpud/mediator/tasks"
	"vgpud/mediator/vgpu/abi"
)

// Tasks implements [api.Host].
func (s *Service) Tasks() api.Tasks {
	now := s.clock.Now()
	var all []tasks.Task
	var waits tasks.Waits
	var moves tasks.Moves
	s.tasks.locked(func(t *tasks.Table) { all, waits, moves = t.Tasks(now), t.Waits(), t.Moves() })
	out := make([]api.Task, len(all))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, x := range all {
		out[i] = api.Task{
			VM: x.Key.Guest, Context: x.Key.Slot, Tag: x.Request.Tag, State: taskStateNames[x.State],
			MemoryBytes: x.Request.Memory, OnHostBytes: x.OnHost, Moves: int(x.Left), Blocks: x.Request.Blocks, Threads: x.Request.Threads,
			Warps: x.Warps, WaitedSeconds: x.Waited.Seconds(), Passed: x.Passed,
		}
		if g := s.guests[x.Key.Guest]; g != nil {
			out[i].Domain = g.domainNow().Name
		}
		switch {
		case x.Placed:
			out[i].GPU, out[i].Why = s.devices[x.GPU].config.Name, whyMoves[x.Why]
			if x.State == taskplace.Growing {
				out[i].Why = abi.WaitMemory.String()
			}
		case x.State == taskplace.Parked:
			out[i].Why = "it has nothing to do"
		case x.Reason != abi.WaitNone:
			out[i].Why = x.Reason.String()
		}
	}
	slices.SortStableFunc(out, func(a, b api.Task) int { return strings.Compare(a.VM, b.VM) })
	return api.Tasks{Tasks: out, Waits: apiWaits(&waits), Moves: apiMoves(moves)}
}

// apiWaits returns how long tasks waited.
func apiWaits(w *tasks.Waits) api.Histogram {
	h := api.Histogram{Count: w.Count, Seconds: w.Sum.Seconds()}
	if w.Count == 0 {
		return h
	}
	sum := uint64(0)
	for i, bound := range tasks.WaitBounds {
		sum += w.In[i]
		h.Buckets = append(h.Buckets, api.Bucket{UpTo: bound.Seconds(), Count: sum})
	}
	return h
}
