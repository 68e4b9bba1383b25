package scheduler

import (
	"cmp"
	"slices"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// If a GPU is accounted by what executors record, contexts are charged by numbers of the
// scheduler's own: their channel groups may not be known, and what a control page says of them is
// only its guest's word.

// assignNumbers gives each guest without a number the least one, from 1 on, that no other has.
func assignNumbers(guests []*Guest) {
	taken := make(map[int]bool, len(guests))
	for _, g := range guests {
		taken[g.number] = true
	}
	n := 1
	for _, g := range guests {
		if g.number > 0 {
			continue
		}
		for taken[n] {
			n++
		}
		g.number, taken[n] = n, true
	}
}

// maxNumber is the number of guests of a GPU whose contexts have numbers of their own.
const maxNumber = (1<<16)/ipc.MaxContexts - 1

// contextGroup returns the number that stands for a context's channel group.
func (g *Guest) contextGroup(context int) accounting.GroupID {
	return accounting.GroupID(min(g.number, maxNumber)*ipc.MaxContexts + context)
}

// chargedGroups calls f with each channel group that a guest is charged for now.
//
// Preconditions: s.mu is held.
func (s *Scheduler) chargedGroups(g *Guest, f func(accounting.GroupID)) {
	if !s.gpu.ByExecutors {
		for _, id := range g.owned {
			f(id)
		}
		return
	}
	for context := range ipc.MaxContexts {
		f(g.contextGroup(context))
	}
}

// mostOwned is how many groups a guest has at most, those included that it says no more that it
// has.
const mostOwned = 2 * ipc.MaxContexts

// claimGroups finds out whose the hardware's channel groups are. All that is known of that is what
// the guests say: a group belongs to the guest that claimed it first, until that guest does not
// claim it any more and another one does.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) claimGroups(guests []*Guest) {
	if s.gpu.ByExecutors {
		return
	}
	if s.owners == nil {
		s.owners = make(map[accounting.GroupID]*Guest)
	}
	s.claim.guests = guests
	for _, g := range guests {
		s.claim.by = g
		g.o.Executors.Groups(s.claim.of)
	}
}

// claim is the guest among guests that claims groups now. of is claimGroup, as a function that is
// made only once.
type claim struct {
	guests []*Guest
	by     *Guest
	of     func(accounting.GroupID)
}

// claimGroup finds out whose a group is that a guest claims.
//
// Preconditions: s.roster and s.mu are held.
func (s *Scheduler) claimGroup(id accounting.GroupID) {
	g := s.claim.by
	if slices.Contains(g.owned, id) {
		return
	}
	owner := s.owners[id]
	if owner != nil && guestWith(s.claim.guests, owner.id) == owner {
		if owner.claims(id) {
			if !g.contested {
				g.contested = true
				s.o.Log.Warn("guest's context claims a channel group that another guest has; the group stays with that guest", "guest", g.o.Name, "other", owner.o.Name, "group", id)
			}
			return
		}
		owner.disown(id)
	}
	if len(g.owned) >= mostOwned {
		delete(s.owners, g.owned[0])
		g.disown(g.owned[0])
	}
	s.owners[id] = g
	g.owned = append(g.owned, id)
}

// usedIn adds up to st what a guest's channel groups used in a phase.
//
// Preconditions: s.mu is held.
func (s *Scheduler) usedIn(p *accounting.Phase, g *Guest, st *fairshare.Guest) {
	if !s.gpu.ByExecutors {
		for _, id := range g.owned {
			t := p.Of(id)
			st.Used += t.Busy
			st.Runs += t.Runs
			st.Running = st.Running || p.Running && p.Last == id
		}
		return
	}
	first, last := g.contextGroup(0), g.contextGroup(ipc.MaxContexts-1)
	for _, t := range p.From(first) {
		if t.Group > last {
			break
		}
		st.Used += t.Busy
		st.Runs += t.Runs
	}
	st.Running = p.Running && p.Last >= first && p.Last <= last
}

// claims reports whether the guest says that a group is the guest's.
func (g *Guest) claims(group accounting.GroupID) (yes bool) {
	g.o.Executors.Groups(func(id accounting.GroupID) { yes = yes || id == group })
	return yes
}

// disown takes a group away.
func (g *Guest) disown(id accounting.GroupID) {
	g.owned = slices.DeleteFunc(g.owned, func(o accounting.GroupID) bool { return o == id })
}

// indexOf returns the place of the guest with an ID in guests, which are in order of ID.
func indexOf(guests []*Guest, id fairshare.GuestID) (i int, ok bool) {
	return slices.BinarySearchFunc(guests, id, func(g *Guest, id fairshare.GuestID) int { return cmp.Compare(g.id, id) })
}

// guestWith returns the guest with an ID, or nil if there is none.
func guestWith(guests []*Guest, id fairshare.GuestID) *Guest {
	if i, ok := indexOf(guests, id); ok {
		return guests[i]
	}
	return nil
}
