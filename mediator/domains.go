package mediator

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/domain"
	"vgpud/mediator/domain/libvirt"
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
	f := &follower{service: s, known: make(map[string]domain.Devices)}
	if err := libvirt.Follow(ctx, s.clock, s.log, open, f); err != nil {
		s.log.Info("libvirt's domains are not followed", "reason", err)
	}
}

// follower carries out what follows from domains' changes. It is used by one
// goroutine.
type follower struct {
	service *Service
	// known is, by UUID, what the domains' metadata said last.
	known map[string]domain.Devices
}

// Connected implements [libvirt.Follower].
func (f *follower) Connected(ctx context.Context, src libvirt.Source) {
	var uuids []string
	for _, v := range f.service.VMs() {
		if v.DomainUUID != "" && !slices.Contains(uuids, v.DomainUUID) {
			uuids = append(uuids, v.DomainUUID)
		}
	}
	for _, uuid := range uuids {
		f.Happened(ctx, src, libvirt.Event{UUID: uuid})
	}
	for uuid := range f.known {
		if !slices.Contains(uuids, uuid) {
			delete(f.known, uuid)
		}
	}
}

// Happened implements [libvirt.Follower].
func (f *follower) Happened(ctx context.Context, src libvirt.Source, e libvirt.Event) {
	// First the guests, then the domain: a guest that is made after the domain
	// was seen to be stopped belongs to its next start.
	guests := f.service.VMs()
	guests = slices.DeleteFunc(guests, func(v api.VM) bool { return v.DomainUUID != e.UUID })
	if len(guests) == 0 {
		delete(f.known, e.UUID)
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
	before, known := f.known[e.UUID]
	if seen.active && seen.problem == nil {
		f.known[e.UUID] = seen.gpus
	} else if !seen.active {
		delete(f.known, e.UUID)
	}
	for _, c := range seen.consequences(guests, e.Metadata || known && !slices.Equal(before, seen.gpus)) {
		if err := f.carryOut(c); err != nil {
			log.Warn("follow the domain", "guest", c.guest, "err", err)
		}
	}
}

// carryOut does what a domain's change means for one guest.
func (f *follower) carryOut(c consequence) error {
	if c.end {
		ended, err := f.service.end(c.guest, func(g *guest) bool { return g.pid == c.pid })
		if ended {
			f.service.log.Warn("guest released: its domain is not running, and libvirt's hook had not said so", "guest", c.guest)
		}
		return err
	}
	_, err := f.service.UpdateVM(c.guest, c.update)
	if errors.Is(err, api.ErrNotFound) {
		return nil // it has ended meanwhile
	}
	return err
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
	end    bool
	pid    int // of the guest's process, which is to be ended
	update api.VMUpdate
}

// consequences is what a domain, as it is seen now, means for its guests. terms
// is whether what its metadata grants is to be applied; else only who it is.
func (s *domainSeen) consequences(guests []api.VM, terms bool) []consequence {
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
		if terms && s.problem == nil {
			s.grant(v, &c.update)
		}
		if c.update != (api.VMUpdate{}) {
			all = append(all, c)
		}
	}
	return all
}

// grant puts into an update what of the guest's terms the metadata has otherwise.
// What the metadata says nothing about, such as a guest that was attached at run
// time, stays.
func (s *domainSeen) grant(v *api.VM, u *api.VMUpdate) {
	name := domainSocketName.FindStringSubmatch(filepath.Base(v.Socket))
	if name == nil {
		return
	}
	n, err := strconv.Atoi(name[1])
	if err != nil || n >= len(s.gpus) {
		return
	}
	want := s.gpus[n].Terms()
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
