package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

// LibvirtOff is the value of [Config.Libvirt] that follows no domains.
const LibvirtOff = "off"

// libvirtLimit is how long libvirt may take to answer.
const libvirtLimit = 20 * time.Second

// followDomains has guests follow the libvirt domains that they belong to, in their names and in
// what the domains' metadata grants them. It ends guests whose domain has stopped without the hook
// having said so.
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

// follower carries out what domains' changes mean for guests.
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

// Changed implements [libvirt.Follower].
func (f *follower) Changed(ctx context.Context, src libvirt.Source, e libvirt.Event) {
	// The guests come first, then the domain: a guest that is created after the domain was seen to
	// be stopped belongs to the domain's next start.
	guests := f.service.members(e.UUID)
	if len(guests) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, libvirtLimit)
	defer cancel()
	d, err := src.Domain(ctx, e.UUID, libvirt.Current)
	if err != nil && !errors.Is(err, libvirt.ErrNoDomain) {
		f.service.log.Warn("read a domain", "uuid", e.UUID, "err", err)
		return
	}
	seen := parseDomain(d)
	log := f.service.log.With("domain", d.Name, "uuid", e.UUID)
	if seen.problem != nil {
		log.Warn("the domain's metadata; its guests keep what they have", events.Kind(events.DomainProblem), "err", seen.problem)
	}
	for _, c := range seen.consequences(guests, e.Metadata) {
		if err := f.carryOut(c); err != nil {
			log.Warn("follow the domain", events.Kind(events.DomainProblem), "guest", c.guest, "err", err)
		}
	}
}

// carryOut does what a domain's change means for one guest.
func (f *follower) carryOut(c consequence) error {
	if c.end {
		if t, ok := f.service.silentGuest(c.guest); ok {
			return f.service.endSilent(t)
		}
		if f.service.isLost(c.guest) {
			_, err := f.service.forgetLost(c.guest)
			return err
		}
		ended, err := f.service.end(c.guest, func(g *guest) bool { return g.pid == c.pid })
		if ended {
			f.service.log.Warn("guest released: its domain is not running, and libvirt's hook had not said so", events.Kind(events.GuestReleased), "guest", c.guest)
		}
		return err
	}
	if _, ok := f.service.silentGuest(c.guest); ok {
		return nil // it follows the domain's next change after it was adopted
	}
	if f.service.isLost(c.guest) {
		return nil
	}
	var err error
	if c.update != (api.VMUpdate{}) {
		_, err = f.service.UpdateVM(access.Self("libvirt"), c.guest, c.update)
	}
	if err == nil && c.granted != nil {
		// A change that could not be granted is not saved, and tried again.
		err = f.service.saveGranted(c.guest, c.pid, *c.granted)
	}
	if errors.Is(err, api.ErrNotFound) {
		return nil // it has ended meanwhile
	}
	return err
}

// member is a guest of a domain.
type member struct {
	api.VM
	// granted is what the domain's metadata granted it last; nil if that is not known. It is saved
	// for the next daemon. So a change of the metadata while no daemon ran can be told from a
	// change over the API, which holds until the metadata changes.
	granted *api.Terms
	// timeLimit is the limit of its kernels' time that was asked for last.
	timeLimit time.Duration
}

// budget returns the guest's own budget.
func (m *member) budget() (b quota.Budget) {
	if m.Budget != nil {
		b = m.Budget.Budget
	}
	return b
}

// members returns the guests of a domain, in order of their names.
func (s *Service) members(uuid string) []member {
	var all []member
	for _, v := range s.VMs() {
		if v.DomainUUID != uuid {
			continue
		}
		m := member{VM: v}
		if g, err := s.guest(v.Name); err == nil {
			m.timeLimit = g.terms().KernelTimeLimit
			if t := g.domainNow().Granted; t != nil {
				granted := api.Terms(*t)
				m.granted = &granted
			}
		}
		all = append(all, m)
	}
	return all
}

// saveGranted saves what a domain's metadata grants a guest.
func (s *Service) saveGranted(name string, pid int, t api.Terms) error {
	g, err := s.guest(name)
	if err != nil {
		return err
	}
	if g.pid != pid {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.notFound(name)
	}
	granted := ipc.Terms(t)
	g.setDomain(func(d *ipc.Domain) { d.Granted = &granted })
	s.save(g)
	return nil
}

// domainState is a domain as libvirt shows it.
type domainState struct {
	name   string
	active bool // also false if there is no such domain any more
	gpus   domain.Devices
	// account names who pays for the domain's usage, as far as its metadata tells.
	account domain.Account
	// problem is what is wrong with its metadata.
	problem error
}

// parseDomain returns what matters of a domain.
func parseDomain(d libvirt.Domain) domainState {
	s := domainState{name: d.Name, active: d.Active}
	if d.XML != "" {
		// An error in the XML is a problem only if the domain has something of vgpud's.
		s.account, _ = domain.AccountOf([]byte(d.XML))
	}
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

// consequence is what a domain's change means for one of its guests.
type consequence struct {
	guest  string
	pid    int // of the guest's process
	end    bool
	update api.VMUpdate
	// granted is what the metadata grants, nil if that has not changed.
	granted *api.Terms
}

// consequences returns what a domain's state means for its guests. set reports whether its metadata
// was set just now: what it grants is then applied even if it has not changed, since somebody asked
// for it again.
func (s *domainState) consequences(guests []member, set bool) []consequence {
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
		if s.account != (domain.Account{}) && s.account != (domain.Account{Owner: v.Owner, Project: v.Project}) {
			c.update.Owner, c.update.Project = &s.account.Owner, &s.account.Project
		}
		if want, ok := s.terms(&v.VM); ok && s.problem == nil {
			changed := v.granted == nil || *v.granted != want
			if set || v.granted != nil && changed {
				difference(v, want, &c.update)
			}
			if changed {
				c.granted, c.pid = &want, v.PID
			}
		}
		if c.update != (api.VMUpdate{}) || c.granted != nil {
			all = append(all, c)
		}
	}
	return all
}

// terms returns what the metadata grants a guest. It returns false for a guest that the metadata
// does not mention, such as one that was attached at run time.
func (s *domainState) terms(v *api.VM) (t api.Terms, ok bool) {
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

// difference puts into an update the terms that differ from what is wanted.
func difference(v *member, want api.Terms, u *api.VMUpdate) {
	if want.Weight != v.Weight {
		u.Weight = &want.Weight
	}
	if want.Cap != v.Cap {
		u.Cap = &want.Cap
	}
	if want.Guarantee != v.Guarantee {
		u.Guarantee = &want.Guarantee
	}
	if want.Budget != v.budget() {
		u.Budget = &want.Budget
	}
	if want.KernelTimeLimit != v.timeLimit {
		u.KernelTimeLimit = &want.KernelTimeLimit
	}
	if want.PriorityCeiling != v.PriorityCeiling {
		u.PriorityCeiling = &want.PriorityCeiling
	}
	if want.Latency != v.Latency {
		u.Latency = &want.Latency
	}
	if want.MemoryLimitBytes != v.MemoryLimitBytes {
		u.MemoryLimitBytes = &want.MemoryLimitBytes
	}
}
