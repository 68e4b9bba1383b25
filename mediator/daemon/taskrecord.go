package daemon

import (
	"slices"

	"vgpud/mediator/ipc"
	"vgpud/mediator/tasks"
)

// restoreTasks has the table know a guest that is adopted, with the contexts that have a GPU. Which
// they are, an earlier daemon saved; that they are still there, the guest's process says.
func (s *Service) restoreTasks(g *guest, saved *savedState) {
	g.tasks, g.answers.tell = s.tasks, func() { s.wg.Go(func() { s.tellPlaces(g) }) }
	s.restoreSpares(g)
	if !g.floats() {
		return
	}
	g.savedAway = saved.away()
	var left []savedTask
	had := uint64(0)
	for _, k := range saved.Tasks {
		// Else it ended, or left its GPU, while no daemon ran.
		if slices.ContainsFunc(g.introduced, k.is) && g.leftBefore(&k.Task) == nil {
			left = append(left, k)
			had += k.granted()
		}
	}
	// A limit that was lowered takes nothing away.
	s.admitWith(g, max(had, g.terms().MemoryLimitBytes))
	defer s.admitTasks(g)
	for _, k := range left {
		var err error
		s.tasks.locked(func(t *tasks.Table) {
			r := requestOf(&k.Task)
			r.Memory = k.granted()
			err = t.Adopt(s.clock.Now(), g.key(&k.Task), k.Memory, r, s.tasks.index(k.GPU), k.Waited, k.Left)
		})
		if err != nil {
			s.log.Error("a context's memory is not reserved for it any more", "guest", g.spec.Name, "context", k.Slot, "gpu", k.GPU, "err", err)
		}
	}
}

// startTasks has the contexts wait for a GPU that asked while no daemon ran, and tells the others
// again that they have one: the daemon before may have ended before it did.
func (s *Service) startTasks(g *guest) {
	if !g.floats() {
		s.tasks.notify() // it may have more than nothing now
		return
	}
	var placed []tasks.Task
	s.tasks.locked(func(t *tasks.Table) { placed = t.Placed(g.spec.Name) })
	for _, x := range placed {
		s.tellPlace(g, tasks.Decision{Key: x.Key, GPU: x.GPU, Granted: x.Granted, Waited: x.Waited, Left: x.Left})
	}
	for i := range g.introduced {
		k := &g.introduced[i]
		if !slices.ContainsFunc(placed, func(x tasks.Task) bool { return x.Key == g.key(k) }) {
			s.submitTask(g, k, g.leftBefore(k))
		}
	}
	for i := range g.grows {
		s.growTask(g, &g.grows[i])
	}
	s.tasks.notify()
}

// savedTasks returns the guest's contexts that float and have a GPU, and those that have left theirs, as
// they are saved.
func (g *guest) savedTasks() (placed, away []savedTask) {
	if !g.floats() || g.tasks == nil {
		return nil, nil
	}
	g.tasks.locked(func(t *tasks.Table) {
		for _, x := range t.Placed(g.spec.Name) {
			k := savedTaskOf(&x, x.Granted)
			k.GPU, k.Waited = g.tasks.devices[x.GPU].config.Name, x.Waited
			placed = append(placed, k)
		}
		for _, x := range t.Away(g.spec.Name) {
			away = append(away, savedTaskOf(&x, x.Request.Memory))
		}
	})
	return placed, away
}

// savedTaskOf returns a context that has or had so many bytes on a GPU, as it is saved.
func savedTaskOf(x *tasks.Task, granted uint64) savedTask {
	r := &x.Request
	k := savedTask{
		Task: ipc.Task{Slot: x.Key.Slot, Generation: x.Key.Generation, Tag: r.Tag, Memory: x.First, Blocks: r.Blocks, Threads: r.Threads, Whole: r.Whole},
		Left: x.Left,
	}
	if granted != x.First {
		k.Granted = granted
	}
	return k
}
