package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"vgpud/clock"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
)

// drainEvery is how often guests are looked for that can be moved off a GPU that is being drained.
const drainEvery = time.Second

// moveAfter is how long a guest may have been without a VMM until it is moved: its VMM may be about
// to connect.
const moveAfter = 5 * time.Second

// drainer moves guests off the GPUs that are being drained.
type drainer struct {
	service *Service
	idle    map[*guest]time.Duration // since when each could be moved
	stays   map[*guest]string        // why each could not
}

func newDrainer(s *Service) *drainer {
	return &drainer{service: s, idle: make(map[*guest]time.Duration), stays: make(map[*guest]string)}
}

// run looks for guests to move until ctx ends.
func (d *drainer) run(ctx context.Context) {
	for clock.Tick(ctx, d.service.clock, drainEvery) == nil {
		d.moveIdle(d.service.clock.Now())
	}
}

// moveIdle moves the guests that have been without a VMM for moveAfter at now.
func (d *drainer) moveIdle(now time.Duration) {
	for _, g := range d.movable(now) {
		err := d.service.move(g)
		if err != nil && d.stays[g] != err.Error() {
			d.stays[g] = err.Error()
			d.service.log.Warn("guest stays on a GPU that is being drained", events.Kind(events.GuestMoved), "guest", g.spec.Name, "gpu", g.device.config.Name, "err", err)
		}
	}
}

// movable returns the guests to move at now.
func (d *drainer) movable(now time.Duration) (all []*guest) {
	s := d.service
	s.mu.RLock()
	defer s.mu.RUnlock()
	for g := range d.idle {
		if s.guests[g.spec.Name] != g {
			delete(d.idle, g)
			delete(d.stays, g)
		}
	}
	for _, g := range s.guests {
		if g.floats() || !g.device.cordonNow().Draining || g.page.Attached() || g.spec.DomainUUID != "" || g.spec.Engine != "" {
			delete(d.idle, g)
			continue
		}
		if _, ok := d.idle[g]; !ok {
			d.idle[g] = now
		}
		if now-d.idle[g] >= moveAfter {
			all = append(all, g)
		}
	}
	return all
}

// inUse reports whether guests have contexts on a GPU. One that does not answer may have some.
func (s *Service) inUse(d *device) bool {
	s.mu.RLock() // so that the pages stay open
	defer s.mu.RUnlock()
	for _, g := range s.guests {
		if p := g.onDevice(d); p != nil && p.sched.Activity().Contexts > 0 {
			return true
		}
	}
	for _, t := range s.silent {
		v, silent := t.vm()
		if _, there := v.On(d.config.Name); silent && there {
			return true
		}
	}
	return false
}

// allDrained reports whether all GPUs of the guest are being drained.
func (g *guest) allDrained() bool {
	return !slices.ContainsFunc(g.all(), func(p *presence) bool { return !p.device.cordonNow().Draining })
}

// errAttached says that a VMM has connected meanwhile.
var errAttached = errors.New("its VMM has connected")

// move ends a guest that has no VMM and creates it anew on another GPU, with its terms, its bill
// and its sockets. A guest of a libvirt domain need not be moved: it ends with its domain, and the
// domain's next start creates another.
func (s *Service) move(g *guest) error {
	spec, err := specOf(g)
	if err != nil {
		return err
	}
	s.admission.Lock()
	to, err := s.chooseDevice(&spec, nil)
	s.admission.Unlock()
	if err == nil {
		err = s.claim(&spec, to) // before the guest ends
	}
	if err != nil {
		return err
	}
	// A daemon that is killed while there is neither the guest nor its successor leaves the next one this.
	last, err := s.VM(g.spec.Name)
	if err != nil {
		return err
	}
	if err := s.saveLost(lostAs(&last, fmt.Sprintf("the daemon ended while it moved it to GPU %s", to.config.Name))); err != nil {
		return s.notSaved(err)
	}
	settle := func() {
		if err := s.o.Files.Remove(s.lostFile(g.spec.Name)); err != nil {
			s.log.Warn("the next daemon may show a guest as lost that is not", "guest", g.spec.Name, "err", err)
		}
	}
	bill := g.sched.Bill()
	attached := false
	ended, err := s.end(g.spec.Name, func(now *guest) bool {
		attached = now != g || now.page.Attached()
		return !attached
	})
	switch {
	case attached || err == nil && !ended:
		settle()
		return errAttached
	case err != nil && !errors.Is(err, api.ErrNotSaved): // it goes on
		settle()
		return err
	}
	spec.GPU = to.config.Name
	if _, err = s.createVM(access.Self("drain"), spec, bill); err != nil {
		s.log.Error("guest can't be moved", events.Kind(events.GuestMoved), "guest", spec.Name, "gpu", to.config.Name, "err", err)
		s.lose(&api.VM{Name: spec.Name, GPU: g.spec.GPU.Name, Socket: g.spec.Socket, Weight: spec.Weight},
			fmt.Sprintf("it could not be moved to GPU %s: %v", to.config.Name, err))
		return err
	}
	settle()
	s.log.Info("guest moved", events.Kind(events.GuestMoved), "guest", spec.Name, "from", g.spec.GPU.Name, "to", to.config.Name)
	return nil
}

// specOf returns a request for a guest as another one is, on any GPU.
func specOf(g *guest) (api.VMSpec, error) {
	t, domain := g.terms(), g.domainNow()
	spec := api.VMSpec{
		Name: g.spec.Name, Domain: domain.Name, Owner: domain.Owner, Project: domain.Project, GPU: api.AnyGPU,
		Weight: t.Weight, Cap: t.Cap, Guarantee: t.Guarantee, PriorityCeiling: t.PriorityCeiling, Latency: t.Latency, Budget: t.Budget,
		BAR2Bytes: g.spec.BAR2Bytes, MemoryLimitBytes: t.MemoryLimitBytes, KernelTimeLimit: g.sched.TimeLimit(), Peer: apiPeer(g.spec.Peer),
	}
	if spec.KernelTimeLimit == 0 {
		spec.KernelTimeLimit = api.NoTimeLimit
	}
	// The owner of its socket is its VMM's user, which is saved nowhere else.
	info, err := os.Stat(g.spec.Socket)
	if err != nil {
		return spec, fmt.Errorf("whose its socket is: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid := int(st.Uid), int(st.Gid)
		spec.UID, spec.GID = &uid, &gid
	}
	return spec, nil
}
