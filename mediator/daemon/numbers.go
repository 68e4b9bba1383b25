package daemon

import (
	"slices"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// Where a GPU is accounted by what executors say, contexts go by numbers of the daemon's
// own: their channel groups may not be known, and what a page says of them is its
// guest's word.

// number gives each of a GPU's guests the least number from 1 on that none of the
// others has, and keeps it.
func number(guests []*guest) {
	var taken []bool
	for _, g := range guests {
		if g.number > 0 {
			taken = append(taken, make([]bool, max(g.number+1-len(taken), 0))...)
			taken[g.number] = true
		}
	}
	for _, g := range guests {
		if g.number > 0 {
			continue
		}
		n := 1
		for n < len(taken) && taken[n] {
			n++
		}
		g.number = n
		taken = append(taken, make([]bool, max(n+1-len(taken), 0))...)
		taken[n] = true
	}
}

// maxNumber is how many guests of a GPU have contexts' numbers of their own.
const maxNumber = (1<<16)/ipc.MaxContexts - 1

// context is the number of a context, by its slot.
func (g *guest) context(slot int) accounting.GroupID {
	return accounting.GroupID(min(g.number, maxNumber)*ipc.MaxContexts + slot)
}

// groups calls f with each number by which a guest's contexts are charged now: all that
// can be its, where the numbers are the daemon's. The caller holds mu.
func (s *share) groups(g *guest, f func(accounting.GroupID)) {
	if !s.opened.sight.told() {
		for _, id := range g.owned {
			f(id)
		}
		return
	}
	for slot := range ipc.MaxContexts {
		f(g.context(slot))
	}
}

// mostOwned is how many groups are a guest's at most, those that it says no more that it
// has included.
const mostOwned = 2 * ipc.MaxContexts

// claim finds out whose the hardware's channel groups are. All that is known of that is
// what the guests' pages say: a group stays who said first that it is its, until that
// one does not say so any more and another one does. The caller holds mu.
func (s *share) claim(guests []*guest) {
	if s.opened.sight.told() {
		return
	}
	if s.owners == nil {
		s.owners = make(map[accounting.GroupID]fairshare.GuestID)
	}
	for _, g := range guests {
		g.groups(func(id accounting.GroupID) {
			owner, owned := s.owners[id]
			if owned && owner == g.id {
				return
			}
			if i := slices.IndexFunc(guests, func(o *guest) bool { return o.id == owner }); owned && i >= 0 {
				o := guests[i]
				if o.claims(id) {
					if !g.greedy {
						g.greedy = true
						s.log.Warn("guest's context is said to have a channel group that another guest's has: it stays that one's", "guest", g.spec.Name, "other", o.spec.Name, "group", id)
					}
					return
				}
				o.disown(id)
			}
			if len(g.owned) >= mostOwned {
				delete(s.owners, g.owned[0])
				g.disown(g.owned[0])
			}
			s.owners[id] = g.id
			g.owned = append(g.owned, id)
		})
	}
}

// claims is whether the guest's page says that a group is the guest's.
func (g *guest) claims(group accounting.GroupID) (yes bool) {
	g.groups(func(id accounting.GroupID) { yes = yes || id == group })
	return yes
}

// disown takes a group away.
func (g *guest) disown(id accounting.GroupID) {
	g.owned = slices.DeleteFunc(g.owned, func(o accounting.GroupID) bool { return o == id })
}
