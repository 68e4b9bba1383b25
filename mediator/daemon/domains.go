package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

// LibvirtOff is for [Config.Libvirt]: follow no domains.
const LibvirtOff = "off"

// libvirtLimit is how long libvirt may take to answer.
const libvirtLimit = 20 * time.Second

// followDomains keeps guests as the libvirt domains are that they belong to:
// their names and what their metadata grants them; and it ends those whose
// domain has stopped without the hook having said so.
func (s *Service) followDomains(ctx context.Context) {
	uri := s.o.Config.Libvirt
	if s.o.Libvirt == nil || uri == LibvirtOff {
		s.log.Info("libvirt's domains are not followed", "reason", "it is configured so")
		return
	}
	open := func(ctx context.Context) (libvirt.Source, error) {
		ctx, cancel := context.WithTimeout(ctx, libvirtLimit)
		defer cancel()
		return s.o.Libvirt(ctx, uri)
	}
	if err := libvirt.Follow(ctx, s.clock, s.log, open, &follower{s}); err != nil {
		s.log.Info("libvirt's domains are not followed", "reason", err)
	}
}

// follower carries out what follows from domains' changes.
type follower struct{ service *Service }

// Connected implements [libvirt.Follower].
func (f *follower) Connected(ctx context.Context, src libvirt.Source) {
	var uuids []string
	for _, v := range f.service.VMs() {
		if v.DomainUUID != "" && !slices.Contains(uuids, v.DomainUUID) {
			uuids = append(uuids, v.DomainUUID)
		}
	}
	for _, uuid := range uuids {
		f.Changed(ctx, src, libvirt.Event{UUID: uuid})
	}
}

// Happened implements [libvirt.Follower].
func (f *follower) Changed(ctx context.Context, src libvirt.Source, e libvirt.Event) {
	// First the guests, then the domain: a guest that is made after the domain
	// was seen to be stopped belongs to its next start.
	guests := f.service.members(e.UUID)
	if len(guests) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, libvirtLimit)
	defer cancel()
	d, err := src.Domain(ctx, e.UUID, libvirt.Current)
	if err != nil && !errors.Is(err, libvirt.ErrNoDomain) {
		f.service.log.Warn("look at a domain", "uuid", e.UUID, "err", err)
		return
	}
	seen := see(d)
	log := f.service.log.With("domain", d.Name, "uuid", e.UUID)
	if seen.problem != nil {
		log.Warn("the domain's metadata; its guests keep what they have", "err", seen.problem)
	}
	for _, c := range seen.consequences(guests, e.Metadata) {
		if err := f.carryOut(c); err != nil {
			log.Warn("follow the domain", "guest", c.guest, "err", err)
		}
	}
}

// carryOut does what a domain's change means for one guest.
func (f *follower) carryOut(c consequence) error {
	if c.end {
		if t, ok := f.service.silentOne(c.guest); ok {
			return f.service.endSilent(t)
		}
		ended, err := f.service.end(c.guest, func(g *guest) bool { return g.pid == c.pid })
		if ended {
			f.service.log.Warn("guest released: its domain is not running, and libvirt's hook had not said so", "guest", c.guest)
		}
		return err
	}
	if _, ok := f.service.silentOne(c.guest); ok {
		return nil // it is followed once it is met, by the next change
	}
	var err error
	if c.update != (api.VMUpdate{}) {
		_, err = f.service.UpdateVM(c.guest, c.update)
	}
	if err == nil && c.granted != nil {
		// What could not be granted is not noted, and tried again.
		err = f.service.noteGranted(c.guest, c.pid, *c.granted)
	}
	if errors.Is(err, api.ErrNotFound) {
		return nil // it has ended meanwhile
	}
	return err
}

// member is a guest of a domain.
type member struct {
	api.VM
	// granted is what the domain's metadata has granted it last; nil where that is
	// not known. Its process keeps it over this daemon's end: so what was changed
	// while nobody listened is told from what the operator has changed since by the
	// API, which holds while the metadata says what it said.
	granted *api.Terms
}

// members are the guests of a domain.
func (s *Service) members(uuid string) []member {
	var all []member
	for _, v := range s.VMs() {
		if v.DomainUUID != uuid {
			continue
		}
		m := member{VM: v}
		s.mu.RLock()
		if g := s.guests[v.Name]; g != nil {
			if t := g.domainNow().Granted; t != nil {
				granted := api.Terms(*t)
				m.granted = &granted
			}
		}
		s.mu.RUnlock()
		all = append(all, m)
	}
	return all
}

// noteGranted keeps what a domain's metadata grants a guest.
func (s *Service) noteGranted(name string, pid int, t api.Terms) error {
	s.mu.RLock()
	g := s.guests[name]
	s.mu.RUnlock()
	if g == nil || g.pid != pid {
		return noGuest(name)
	}
	granted := ipc.Terms(t)
	g.setDomain(func(d *ipc.Domain) { d.Granted = &granted })
	s.note(g)
	return nil
}

// domainSeen is a domain as libvirt shows it.
type domainSeen struct {
	name   string
	active bool // false, too, where there is no such domain any more
	gpus   domain.Devices
	// problem is what is wrong with its metadata.
	problem error
}

// see takes what matters from a domain.
func see(d libvirt.Domain) domainSeen {
	s := domainSeen{name: d.Name, active: d.Active}
	if !domain.Concerns([]byte(d.XML)) {
		return s
	}
	v, err := domain.Parse([]byte(d.XML))
	if err != nil {
		s.problem = err
		return s
	}
	s.gpus = v.GPUs
	return s
}

// consequence is what a domain's change means for a guest of its.
type consequence struct {
	guest  string
	pid    int // of the guest's process
	end    bool
	update api.VMUpdate
	// granted, if set, is what the metadata grants, where that is news.
	granted *api.Terms
}

// consequences is what a domain, as it is seen now, means for its guests. told is
// whether its metadata was changed just now: what it grants is then applied even
// where it says what it said, since somebody has said so again.
func (s *domainSeen) consequences(guests []member, told bool) []consequence {
	var all []consequence
	for i := range guests {
		v := &guests[i]
		if !s.active {
			all = append(all, consequence{guest: v.Name, end: true, pid: v.PID})
			continue
		}
		c := consequence{guest: v.Name}
		if s.name != v.Domain {
			c.update.Domain = &s.name
		}
		if want, ok := s.terms(&v.VM); ok && s.problem == nil {
			news := v.granted == nil || *v.granted != want
			if told || v.granted != nil && news {
				difference(&v.VM, want, &c.update)
			}
			if news {
				c.granted, c.pid = &want, v.PID
			}
		}
		if c.update != (api.VMUpdate{}) || c.granted != nil {
			all = append(all, c)
		}
	}
	return all
}

// terms are what the metadata grants a guest. It says nothing about one that was
// attached at run time, for example.
func (s *domainSeen) terms(v *api.VM) (t api.Terms, ok bool) {
	name := domainSocketName.FindStringSubmatch(filepath.Base(v.Socket))
	if name == nil {
		return t, false
	}
	n, err := strconv.Atoi(name[1])
	if err != nil || n >= len(s.gpus) {
		return t, false
	}
	return s.gpus[n].Terms(), true
}

// difference puts into an update what a guest has otherwise than is wanted.
func difference(v *api.VM, want api.Terms, u *api.VMUpdate) {
	if want.Weight != v.Weight {
		u.Weight = &want.Weight
	}
	if want.Cap != v.Cap {
		u.Cap = &want.Cap
	}
	if want.Guarantee != v.Guarantee {
		u.Guarantee = &want.Guarantee
	}
	if want.PriorityCeiling != v.PriorityCeiling {
		u.PriorityCeiling = &want.PriorityCeiling
	}
}
