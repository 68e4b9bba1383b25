package daemon

import (
	"slices"

	taskplace "vgpud/fairshare/place"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/tasks"
)

// taskStateNames are the states of tasks as operators see them.
var taskStateNames = map[taskplace.State]string{
	taskplace.Waiting: api.TaskWaits, taskplace.Placed: api.TaskPlaced, taskplace.Growing: api.TaskGrowing,
	taskplace.Moving: api.TaskMoving, taskplace.Leaving: api.TaskLeaving, taskplace.Parked: api.TaskParked,
}

// whyMoves are the reasons for which tasks leave their GPUs, as operators see them.
var whyMoves = map[taskplace.Why]string{
	taskplace.Growth: "it needs more memory", taskplace.ForUrgent: "an urgent guest needs the memory",
	taskplace.IsIdle: "others wait for memory that it does not use",
}

// apiMoves returns how many tasks left their GPUs, by why.
func apiMoves(m tasks.Moves) api.TaskMoves {
	return api.TaskMoves{Growth: m[taskplace.Growth], Urgent: m[taskplace.ForUrgent], Idle: m[taskplace.IsIdle]}
}

// onHostOf returns how much of the host's memory a guest's contexts may take that have left their GPUs,
// where limit bounds its processes' memory; 0 is no bound. The rest is for the processes themselves and
// for what they share with the guest. Both are in bytes.
func onHostOf(limit uint64) uint64 { return limit / 4 * 3 }

// leftBefore returns what the guest's process says of a context that had left its GPU when this daemon
// came, or nil.
func (g *guest) leftBefore(k *ipc.Task) *ipc.Left {
	for i := range g.departed {
		if l := &g.departed[i]; l.Slot == k.Slot && l.Generation == k.Generation {
			return l
		}
	}
	return nil
}

// awayOf returns what is known of a context that had left its GPU when this daemon came. l is what the
// guest's process says of it.
func (g *guest) awayOf(k *ipc.Task, l *ipc.Left) tasks.Away {
	a := tasks.Away{Times: l.Times, OnHost: min(l.Bytes, api.MaxMemoryLimit), Had: l.Memory, Wants: l.Wants}
	if i := slices.IndexFunc(g.savedAway, func(s savedTask) bool { return s.is(*k) }); i >= 0 {
		a.Saved = g.savedAway[i].granted()
	}
	return a
}

// taskLeft records that a context has left its GPU, or stays there. One that moves goes on at once.
func (s *Service) taskLeft(g *guest, l *ipc.Left) {
	k := g.contextKey(l.Slot, l.Generation)
	if l.Error != "" {
		s.log.Debug("a context stays on its GPU", "guest", g.spec.Name, "context", l.Slot, "err", l.Error)
		s.tasks.locked(func(t *tasks.Table) { t.Stayed(s.clock.Now(), k) })
		return
	}
	var d tasks.Decision
	var goesOn bool
	s.tasks.locked(func(t *tasks.Table) {
		d, goesOn = t.Left(s.clock.Now(), k, l.Times, min(l.Bytes, api.MaxMemoryLimit), l.Wants)
	})
	s.log.Debug("context has left its GPU", "guest", g.spec.Name, "context", l.Slot, "bytes", l.Bytes, "wants", l.Wants)
	if goesOn {
		s.carryOut(&d)
	}
}

// growTask has a context ask for more memory.
func (s *Service) growTask(g *guest, w *ipc.Grow) {
	var d tasks.Decision
	var answered bool
	s.admission.Lock()
	gpus := s.taskGPUs()
	s.tasks.locked(func(t *tasks.Table) {
		d, answered = t.Grow(s.clock.Now(), g.contextKey(w.Slot, w.Generation), w.Memory, gpus)
	})
	s.admission.Unlock()
	if answered {
		s.carryOut(&d)
	}
}

// lookForQuietTasks looks, while tasks wait, which of those on GPUs have nothing to do. The guests'
// pages may say anything: a guest that claims to have work keeps what it has.
func (s *Service) lookForQuietTasks() {
	h, now := s.tasks, s.clock.Now()
	var all []tasks.Task
	h.locked(func(t *tasks.Table) { all = t.Tasks(now) })
	seen := make(map[tasks.Key]uint64, len(all))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, x := range all {
		g := s.guests[x.Key.Guest]
		if g == nil || !x.Placed {
			continue
		}
		p := g.onDevice(s.devices[x.GPU])
		if p == nil {
			continue
		}
		c := p.page.Context(x.Key.Slot)
		n := c.Counters().Commands
		last, known := h.commands[x.Key]
		seen[x.Key] = n
		quiet := known && last == n && c.State() == ipc.ContextReady && !c.OnGPU() && !c.Backlog()
		h.locked(func(t *tasks.Table) { t.SetQuiet(now, x.Key, quiet) })
	}
	h.commands = seen // placeTasks alone uses them
}
