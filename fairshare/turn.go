package fairshare

import "time"

// Turn is the turn of a guest whose launch has the GPU, or had it last. The policy would let the
// guest's next launch run whatever that is, if it came before the turn ends and nothing else
// happened until then. So an executor may let it run at once: on the way to the daemon and back two
// more processes are woken, one after the other, while the GPU waits. The zero value is no turn.
type Turn struct {
	Guest GuestID
	// Lasts is how long from now on that is so.
	Lasts time.Duration
	// Behind reports whether a short launch may be put on the GPU behind another short one of the
	// guest. It then can't be taken back unless it leaves when told, and no launch that goes before
	// it may come meanwhile.
	Behind bool
}

// TurnTaker is a policy about launches that knows whose turn it is.
type TurnTaker interface {
	// Turn returns the turn that holds from the last call of Decide until the next.
	Turn() Turn
}

// longestTurn bounds a turn, so that one ends soon if nobody takes it back.
const longestTurn = 10 * time.Millisecond

// turnOf returns the turn that a policy has decided about.
func turnOf(p Policy) Turn {
	if t, ok := p.(TurnTaker); ok {
		return t.Turn()
	}
	return Turn{}
}

// Turn implements [TurnTaker].
func (u *urgentSlices) Turn() Turn { return turnOf(u.policy) }

// Turn implements [TurnTaker]. A guest that is kept from the GPU has none.
func (b *bounded) Turn() Turn {
	t := turnOf(b.policy)
	if a := b.get(t.Guest); a == nil || b.kept(a) {
		return Turn{}
	}
	return t
}

// Turn implements [TurnTaker].
func (p *fairFirst) Turn() Turn { return p.open }

// openTurn finds the turn of the guest that has the GPU, or for which the GPU waits: its launches
// run one after the other as long as its epoch is worth an eviction. With several streams the order
// among them is the policy's.
func (p *fairFirst) openTurn(st *State, holder GuestID) {
	p.open = Turn{}
	e := p.accounts.get(holder)
	if e == nil || e.waiting > 0 || p.suspended(st, holder) {
		return
	}
	left := longestTurn
	if p.contended(e) {
		left = min(left, e.credit-e.cost)
	}
	if left > 0 {
		p.open = Turn{Guest: holder, Lasts: left, Behind: !st.CoRuns}
	}
}

// Turn implements [TurnTaker].
func (p *ranked) Turn() Turn { return p.open }

// openTurn finds the turn of the guest that has the GPU alone, or had it last, while nobody waits. The
// policy compares launches of others that wait with the guest's next launch.
func (p *ranked) openTurn(st *State) {
	p.open = Turn{}
	let := 0
	for i := range p.verdicts {
		switch v := &p.verdicts[i]; v.Action {
		case Evict:
			return
		case Run:
			p.holder = v.Guest
			let++
		}
	}
	first := let == 0
	for i := range st.Launches {
		l := &st.Launches[i]
		switch {
		case l.Evicting:
			return
		case p.waits(st, l):
			if let--; let < 0 {
				return
			}
		case p.occupies(st, l):
			if first {
				p.holder, first = l.Guest, false
			}
			if l.Guest != p.holder {
				return
			}
		}
	}
	if p.holder != 0 && !p.suspended(st, p.holder) {
		p.open = Turn{Guest: p.holder, Lasts: longestTurn, Behind: !st.CoRuns && !lessUrgent(st, p.holder)}
	}
}

// lessUrgent reports whether another guest may have more urgent launches than a guest.
func lessUrgent(st *State, id GuestID) bool {
	own, top := 0, 0
	for i := range st.Guests {
		if g := &st.Guests[i]; g.ID == id {
			own = g.Urgency
		} else {
			top = max(top, g.Urgency)
		}
	}
	return top > own
}
