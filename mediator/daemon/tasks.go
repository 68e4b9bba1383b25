package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	taskplace "vgpud/fairshare/place"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/tasks"
	"vgpud/mediator/vgpu/abi"
)

// hostTasks are the host's tasks: the contexts of guests that float. GPUs are those of
// Service.devices, in their order.
type hostTasks struct {
	devices []*device
	news    chan struct{} // one entry: tasks or room came or went

	// mu comes after all other locks.
	mu    sync.Mutex
	table *tasks.Table
	// commands are how many commands each context that is on a GPU had carried out at the last look.
	commands map[tasks.Key]uint64
}

// newHostTasks returns the tasks of a host with these GPUs, of which there is none yet.
func newHostTasks(devices []*device) (*hostTasks, error) {
	specs := make([]taskplace.Spec, len(devices))
	// On GPUs whose contexts only take turns, warps say little about how much a task disturbs.
	var placer taskplace.Placer = taskplace.LeastBusy{}
	for i, d := range devices {
		p := d.loop.Properties()
		specs[i] = taskplace.Spec{
			Memory: p.MemoryBytes, SMs: p.SMs, WarpsPerSM: p.ThreadsPerSM / 32, BlocksPerSM: p.BlocksPerSM,
			SharedPerSM: p.SharedPerSM, RegistersPerSM: p.RegistersPerSM,
		}
		if p.CoRuns {
			placer = taskplace.Warps{}
		}
	}
	table, err := tasks.New(specs, placer)
	if err != nil {
		return nil, err
	}
	return &hostTasks{devices: devices, news: make(chan struct{}, 1), table: table}, nil
}

// locked calls f with the table.
func (h *hostTasks) locked(f func(*tasks.Table)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.table)
}

// notify has tasks be placed soon. It does not wait.
func (h *hostTasks) notify() {
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// index returns the number of a GPU on the host, or -1.
func (h *hostTasks) index(gpu string) int {
	return slices.IndexFunc(h.devices, func(d *device) bool { return d.config.Name == gpu })
}

// floatsOver returns the GPUs that a guest may float over whose own GPU is d: those of its kind, up
// to ipc.MaxGPUs.
func (s *Service) floatsOver(d *device) (gpus []ipc.GPU) {
	others := ipc.MaxGPUs - 1
	for _, o := range s.devices {
		switch {
		case o == d:
		case o.config.Kind != d.config.Kind || others == 0:
			continue
		default:
			others--
		}
		gpus = append(gpus, o.ipcGPU())
	}
	return gpus
}

// alike reports whether GPUs differ in nothing that a program can ask for.
func (s *Service) alike(gpus []ipc.GPU) bool {
	all := make([]gpu.Properties, len(gpus))
	for i, g := range gpus {
		all[i] = s.devices[s.tasks.index(g.Name)].loop.Properties()
	}
	return sameProperties(all)
}

// sameProperties reports whether GPUs have the same properties but for what identifies each.
func sameProperties(all []gpu.Properties) bool {
	return !slices.ContainsFunc(all, func(p gpu.Properties) bool {
		p.UUID = all[0].UUID
		return p != all[0]
	})
}

// checkFloat returns an error if a guest of a memory limit can't float: no GPU could hold its limit.
func (s *Service) checkFloat(memory uint64) (err error) {
	if memory == 0 {
		return fmt.Errorf("a guest that floats needs a memory limit, which bounds all of its contexts: %w", api.ErrInvalid)
	}
	s.tasks.locked(func(t *tasks.Table) { err = t.Check(memory) })
	if err != nil {
		return fmt.Errorf("%w: %w", err, api.ErrNoRoom)
	}
	return nil
}

// largestGPU returns the memory of the host's largest GPU, in bytes.
func (s *Service) largestGPU() (most uint64) {
	for _, d := range s.devices {
		most = max(most, d.loop.Properties().MemoryBytes)
	}
	return most
}

// admitTasks tells the table what a guest is granted.
func (s *Service) admitTasks(g *guest) {
	if g.floats() {
		s.admitWith(g, g.terms().MemoryLimitBytes)
	}
}

// admitWith is admitTasks with a memory limit, in bytes.
func (s *Service) admitWith(g *guest, memory uint64) {
	terms := g.terms()
	var may taskplace.Set
	for _, p := range g.all() {
		may = may.With(s.tasks.index(p.device.config.Name))
	}
	var err error
	s.tasks.locked(func(t *tasks.Table) {
		if g.left { // a change of its settings met its end
			return
		}
		err = t.Admit(s.clock.Now(), g.spec.Name, tasks.Guest{
			Weight: terms.Weight, Guarantee: terms.Guarantee, Memory: memory, GPUs: may,
			Own: g.device.loop.Properties().ContextBytes, OnHost: s.onHost, Urgent: terms.PriorityCeiling > 0,
		})
	})
	if err != nil {
		s.log.Error("contexts of a guest that floats get no GPU", "guest", g.spec.Name, "err", err)
	}
	s.tasks.notify()
}

// dropTasks takes back what the contexts have of a guest that has ended, once its executors have given
// their memory back.
func (s *Service) dropTasks(g *guest) {
	if g.floats() {
		g.awaitExecutors()
	}
	s.tasks.locked(func(t *tasks.Table) {
		g.left = true
		t.Remove(s.clock.Now(), g.spec.Name)
		t.RemoveSpares(g.spec.Name)
	})
	s.tasks.notify()
}

// key returns the name of one of the guest's contexts.
func (g *guest) key(k *ipc.Task) tasks.Key {
	return g.contextKey(k.Slot, k.Generation)
}

// contextKey is key of a context by its slot and generation.
func (g *guest) contextKey(slot int, generation uint32) tasks.Key {
	return tasks.Key{Guest: g.spec.Name, Slot: slot, Generation: generation}
}

// requestOf returns what a context asks for.
func requestOf(k *ipc.Task) tasks.Request {
	return tasks.Request{TaskRequest: abi.TaskRequest{Memory: k.Memory, Blocks: k.Blocks, Threads: k.Threads}, Tag: k.Tag, Whole: k.Whole}
}

// handleTask handles a message of a guest's process about a context that floats.
func (s *Service) handleTask(g *guest, m *ipc.Message) {
	if err := m.CloseFiles(); err != nil {
		s.log.Debug("close a guest's files", "err", err)
	}
	var k ipc.Task
	var l ipc.Left
	var w ipc.Grow
	var err error
	switch m.Kind {
	case ipc.KindLeft, ipc.KindWants:
		err = m.Decode(&l)
	case ipc.KindGrow:
		err = m.Decode(&w)
	default:
		err = m.Decode(&k)
	}
	if err != nil || !g.floats() {
		s.log.Debug("a guest's process sends what can't be read", "guest", g.spec.Name, "kind", m.Kind, "err", err)
		return
	}
	switch m.Kind {
	case ipc.KindTask:
		s.submitTask(g, &k, nil)
	case ipc.KindTaskGone:
		s.tasks.locked(func(t *tasks.Table) { t.Free(s.clock.Now(), g.key(&k)) })
	case ipc.KindLeft:
		s.taskLeft(g, &l)
	case ipc.KindWants:
		s.tasks.locked(func(t *tasks.Table) { t.Wants(s.clock.Now(), g.contextKey(l.Slot, l.Generation)) })
	case ipc.KindGrow:
		s.growTask(g, &w)
	}
	s.tasks.notify()
}

// submitTask has a context wait for a GPU: its first, or the next if left says how it left one. The guest's
// process may claim anything.
func (s *Service) submitTask(g *guest, k *ipc.Task, left *ipc.Left) {
	r := requestOf(k)
	w := r.Encode()
	_, code := abi.DecodeTaskRequest(&w)
	if code != abi.ErrorNone || k.Slot < 0 || k.Slot >= ipc.MaxContexts {
		s.log.Debug("a guest's process asks for what can't be", "guest", g.spec.Name, "context", k.Slot, "err", code)
		return
	}
	var err error
	s.tasks.locked(func(t *tasks.Table) {
		// A slot has one context at a time, so a guest has no more tasks than slots.
		t.FreeSlot(s.clock.Now(), g.spec.Name, k.Slot)
		if left != nil {
			err = t.Return(s.clock.Now(), g.key(k), r, g.awayOf(k, left))
		} else {
			err = t.Submit(s.clock.Now(), g.key(k), r)
		}
	})
	if err != nil {
		s.log.Debug("a context's request is refused", "guest", g.spec.Name, "context", k.Slot, "err", err)
	}
}

// lookAgainEvery is how often tasks that wait are looked at although nothing was heard: guests that
// don't float come and go, and GPUs fall ill and recover.
const lookAgainEvery = time.Second

// placeTasks places tasks whenever something changes, until ctx ends.
func (s *Service) placeTasks(ctx context.Context) {
	for {
		waits := s.decideTasks()
		at := s.clock.Now() + lookAgainEvery
		now := s.clock.Now()
		s.tasks.locked(func(t *tasks.Table) {
			if next, ok := t.Next(now); ok {
				at = min(at, max(next, now+time.Millisecond))
			}
		})
		timed, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if waits && s.clock.WaitUntil(timed, at) == nil {
				s.tasks.notify()
			}
		}()
		select {
		case <-ctx.Done():
		case <-s.tasks.news:
		}
		cancel()
		<-done
		if ctx.Err() != nil {
			return
		}
	}
}

// decideTasks decides once, carries that out, and reports whether tasks wait on.
func (s *Service) decideTasks() (waits bool) {
	var ds []tasks.Decision
	s.lookForQuietTasks()
	s.admission.Lock() // what guests are admitted for meanwhile is not granted
	gpus := s.taskGPUs()
	s.tasks.locked(func(t *tasks.Table) {
		ds = t.Decide(s.clock.Now(), gpus)
	})
	s.admission.Unlock()
	for _, d := range ds {
		s.carryOut(&d)
	}
	s.tasks.locked(func(t *tasks.Table) {
		waits = slices.ContainsFunc(t.Tasks(0), func(x tasks.Task) bool {
			return !x.Placed && x.State != taskplace.Parked || x.State == taskplace.Growing
		}) || t.Recalling()
	})
	return waits
}

// carryOut tells a guest what was decided. A grant is saved before, so that the next daemon grants
// that memory to nobody else.
func (s *Service) carryOut(d *tasks.Decision) {
	s.mu.RLock()
	g := s.guests[d.Key.Guest]
	s.mu.RUnlock()
	if g == nil {
		return // it has left, and its tasks go with it
	}
	if d.Granted > 0 && d.Granted != d.Before {
		if err := g.saveTasks(s.clock.Now()); err != nil {
			s.log.Warn("a context waits on: that it has a GPU can't be saved", "guest", g.spec.Name, "context", d.Key.Slot, "err", s.notSaved(err))
			if d.Before == 0 {
				s.tasks.locked(func(t *tasks.Table) { t.Undo(s.clock.Now(), d.Key) })
				return
			}
			s.tasks.locked(func(t *tasks.Table) { t.Shrink(s.clock.Now(), d.Key, d.Before) })
			d.Granted = d.Before
		}
		s.tasks.locked(func(t *tasks.Table) { t.Began(d) })
	}
	switch {
	case d.Recall > 0:
		s.log.Debug("spare executor is to end, as others need its memory", "guest", g.spec.Name, "gpu", s.devices[d.GPU].config.Name)
	case d.Leave:
		s.log.Debug("context is to leave its GPU", "guest", g.spec.Name, "context", d.Key.Slot, "gpu", s.devices[d.GPU].config.Name, "why", d.Why)
	case d.Before > 0:
		s.log.Debug("context asked for more memory", "guest", g.spec.Name, "context", d.Key.Slot, "gpu", s.devices[d.GPU].config.Name, "bytes", d.Want, "granted", d.Granted)
	case d.Granted > 0:
		s.log.Debug("context placed", "guest", g.spec.Name, "context", d.Key.Slot, "gpu", s.devices[d.GPU].config.Name, "bytes", d.Granted, "waited", d.Waited)
	}
	s.tellPlace(g, *d)
}

// taskGPUs returns what of each GPU is not for tasks.
//
// Preconditions: s.admission is held.
func (s *Service) taskGPUs() []tasks.GPU {
	gpus := make([]tasks.GPU, len(s.devices))
	for i, d := range s.devices {
		st := d.loop.Status()
		gpus[i] = tasks.GPU{Busy: st.BusyRatio, Closed: d.problem(&st) != "" || d.cordonNow().Cordoned}
	}
	pin := func(gpu string, memory uint64, guarantee float64) {
		if i := s.tasks.index(gpu); i >= 0 {
			gpus[i].Pinned += memory
			gpus[i].PinnedGuarantee += guarantee
		}
	}
	// Each of its contexts takes more than that, of which nothing is promised; and a guest without a limit
	// may take anything. No spare executor is in the way of either.
	keep := func(gpu string, all bool) {
		switch i := s.tasks.index(gpu); {
		case i < 0:
		case all:
			gpus[i].Kept = s.devices[i].loop.Properties().MemoryBytes
		default:
			gpus[i].Kept += ipc.MaxContexts * s.devices[i].loop.Properties().ContextBytes
		}
	}
	s.eachPromise(func(p *promise) {
		switch {
		case p.floats && p.g != nil:
			for _, x := range p.g.all() {
				pin(x.device.config.Name, s.plainMemory(p.g, x), 0)
			}
		case p.floats:
			for _, x := range p.tasks {
				pin(x.GPU, x.Memory, 0)
			}
		default:
			// Memory that a guest is promised is reserved. One without a limit is promised nothing.
			memory := p.memory
			keep(p.gpu, memory == 0)
			if memory == 0 && p.g != nil {
				memory = min(p.g.page.MemoryTaken(), api.MaxMemoryLimit)
			}
			pin(p.gpu, memory, p.terms.Guarantee)
		}
	})
	return gpus
}

// plainMemory returns the GPU memory that a guest that floats has on a GPU in contexts that don't
// float, which are of drivers of older versions. The guest's processes say how much that is: it is no
// more than the guest's limit leaves beside what it was granted, whatever they say.
//
// Preconditions: s.mu is held, so that the page stays open.
func (s *Service) plainMemory(g *guest, p *presence) (sum uint64) {
	if p != &g.presence {
		return 0
	}
	var placed []tasks.Task
	s.tasks.locked(func(t *tasks.Table) { placed = t.Placed(g.spec.Name) })
	for slot := range ipc.MaxContexts {
		if !slices.ContainsFunc(placed, func(x tasks.Task) bool { return x.Key.Slot == slot }) {
			sum += p.page.Context(slot).MemoryTaken()
		}
	}
	left := g.largestLimit()
	for _, x := range placed {
		left -= min(x.Request.Memory, left)
	}
	return min(sum, left)
}

// there returns on which of its GPUs a guest has contexts, or may have at any time.
func (s *Service) there(g *guest) (all []*presence) {
	for _, p := range g.all() {
		n := 0
		s.tasks.locked(func(t *tasks.Table) { n, _ = t.On(g.spec.Name, s.tasks.index(p.device.config.Name)) })
		if !g.floats() || n > 0 || p.page.Executors() > 0 {
			all = append(all, p)
		}
	}
	return all
}
