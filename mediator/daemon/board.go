package daemon

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// board is what is known of the launches on one GPU. It holds the guests' stubs
// (EffiSha §6.1) against what they were when it last looked, and makes of the
// difference what a policy is told of. It has no clock and decides nothing.
//
// A policy is told of one thing at a time, and shown of the launches beside it
// what it has been told of before: as of the newest look, with what it has had
// done to them since.
//
// Who writes the stubs is a guest's executors, of which the guest may have taken one
// over. So what the daemon said itself it knows by itself, what can't be is made what
// can, and nobody waits for a launch for longer than there is reason to: see patience.
type board struct {
	rows    []*row // in order of arrival
	desks   map[fairshare.GuestID]*desk
	last    fairshare.LaunchID
	notices []notice // that the policy is yet to be told of
	shown   []fairshare.Launch
	looks   uint64
	looked  time.Duration // when last
	// leaving is for how long a launch that is to leave the GPU counts as doing so, 0 for
	// ever.
	leaving time.Duration
	census  census
	// dead are rows of launches that have ended, of which notices may still speak;
	// spare are those to be used again.
	dead, spare []*row
}

// desk is where a guest's stubs lie.
type desk struct {
	rows [ipc.MaxLaunchSlots]*row
	// done is which launch was last seen to have ended, by slot.
	done [ipc.MaxLaunchSlots]uint64
	look uint64 // the newest that had the guest
	// turns is whether its launches wait for verdicts, and limit for how long one may run,
	// 0 for ever.
	turns bool
	limit time.Duration
	credit
}

// row is one launch.
type row struct {
	id    fairshare.LaunchID
	guest fairshare.GuestID
	name  string // the guest's
	desk  *desk
	at    int // its place there
	slot  *ipc.LaunchSlot
	// stub is what was last seen, but for what the daemon said, which is as it was said.
	stub    ipc.Launch
	arrived time.Duration // as far as that can be
	// told is whether the policy knows of it, and announced whether it is about to;
	// over, whether the launch has ended.
	told, announced, over bool
	// ahead is whether it went to the GPU by itself, and the policy is yet to be asked
	// whether it runs: to the policy it waits.
	ahead bool
	// predicted is how long it will run in all.
	predicted time.Duration
	// asked is whether it is to leave the SMs below belowSM as soon as it has come
	// to the GPU, and within which time then; 0 is for ever.
	asked   bool
	belowSM uint32
	within  time.Duration
	// evictions is how often it was seen to have left, and lied whether it did not
	// when told.
	evictions uint32
	lied      bool
	standing
}

// waits is whether the launch waits for a verdict, or went ahead of one.
func (r *row) waits() bool { return r.ahead || r.stub.State == slotstate.Ready }

// leaves is whether it was told to leave, or will be, and which SMs.
func (r *row) leaves() (belowSM uint32, yes bool) {
	switch {
	case r.asked:
		return r.belowSM, true
	case r.stub.State == slotstate.ToEvict:
		return r.stub.BelowSM, true
	}
	return 0, false
}

// used is how long it has run by now.
func (r *row) used(now time.Duration) time.Duration {
	u := r.stub.Used
	if s := r.stub.State; (s == slotstate.Running || s == slotstate.ToEvict) && r.stub.Started > 0 {
		u += max(now-r.stub.Started, 0)
	}
	return u
}

// notice is what a policy will be told of a launch.
type notice struct {
	kind fairshare.EventKind
	row  *row
}

// party is a guest whose stubs are looked at.
type party struct {
	guest fairshare.GuestID
	name  string // the guest's
	page  *ipc.ControlPage
	// mode is how its launches are treated, ceiling the highest priority that they may
	// have, and limit for how long one may run, 0 for ever: by the daemon's word, and not
	// the page's.
	mode    ipc.Mode
	ceiling int
	limit   time.Duration
}

// ahead is whether a launch of the guest's that has just come goes to the GPU by
// itself.
func (p *party) ahead(s *ipc.Launch) bool {
	return p.mode == ipc.ModeAhead && s.Priority >= p.ceiling
}

// longest is what no duration on a page is more than.
const longest = 24 * time.Hour

// possible makes of what a stub says at now what can be.
func (p *party) possible(s *ipc.Launch, now time.Duration) {
	s.Priority = min(s.Priority, p.ceiling)
	s.Started, s.Stopped = min(max(s.Started, 0), now), min(max(s.Stopped, 0), now)
	s.Used, s.Predicted = min(max(s.Used, 0), longest), min(max(s.Predicted, 0), longest)
}

// happening is what came of a launch.
type happening struct {
	kind happened
	row  *row
	took time.Duration // to leave, or what hasIdled cost
}

type happened uint8

const (
	// hasAppeared: it was not there before.
	hasAppeared happened = iota
	// hasLeft the GPU with work undone. took is 0 where nobody had asked.
	hasLeft
	// hasEnded, or failed.
	hasEnded
	// isGone: its stub is another's, or nobody's.
	isGone
	// hasLied: it did not leave when told, and is not expected to any more.
	hasLied
	// hasIdled: it had the turn and did not use it, for which others waited for took.
	hasIdled
	// isForsaken: nobody waits for it any more, though it says that it has the GPU.
	isForsaken
)

// look reads the stubs of all guests there are, at now. What came of their launches is
// told to report at once, and to the policy in time.
func (b *board) look(now time.Duration, guests []party, report func(happening)) {
	b.looks++
	b.keepClocks(now)
	if len(b.notices) == 0 {
		b.spare, b.dead = append(b.spare, b.dead...), b.dead[:0]
	}
	for i := range guests {
		b.read(now, &guests[i], report)
	}
	for id, d := range b.desks {
		if d.look == b.looks {
			continue
		}
		// The guest is gone, and has taken its launches along.
		for _, r := range d.rows {
			b.end(r, isGone, report)
		}
		delete(b.desks, id)
	}
	b.looked = now
	b.lookHard(now, report)
	b.rows = slices.DeleteFunc(b.rows, func(r *row) bool { return r.over })
	slices.SortStableFunc(b.rows, func(x, y *row) int { return cmp.Compare(x.arrived, y.arrived) })
	b.announce()
}

// read reads a guest's stubs.
func (b *board) read(now time.Duration, p *party, report func(happening)) {
	d := b.desks[p.guest]
	found := d == nil // what is there now may have been let there by another daemon
	if found {
		d = new(desk)
		if b.desks == nil {
			b.desks = make(map[fairshare.GuestID]*desk)
		}
		b.desks[p.guest] = d
	}
	b.fade(now, d)
	d.look, d.turns, d.limit = b.looks, p.mode != ipc.ModeFree, p.limit
	for i := range ipc.MaxLaunchSlots {
		slot := p.page.LaunchSlot(i)
		r := d.rows[i]
		// Most stubs are nobody's, and cost next to nothing.
		if launch, state := slot.State(); r == nil && (state <= slotstate.Prep || !state.Valid() || state == slotstate.Done && launch == d.done[i]) {
			continue
		}
		s, ok := slot.Read()
		if r != nil && (!ok || s.ID != r.stub.ID) {
			b.end(r, isGone, report)
			d.rows[i], r = nil, nil
		}
		if !ok {
			continue
		}
		p.possible(&s, now)
		if r == nil {
			b.last++
			r = b.newRow()
			// What it went through before is no news. It was not here the last time.
			*r = row{
				id: b.last, guest: p.guest, name: p.name, desk: d, at: i, slot: slot, stub: s, arrived: min(max(s.Arrived, b.looked), now),
				evictions: s.Evictions, ahead: p.ahead(&s), standing: standing{granted: found, since: now, ready: now, on: now},
			}
			if r.stub.Asked = min(max(s.Asked, 0), now); s.State != slotstate.ToEvict {
				r.stub.BelowSM = 0
			}
			b.rows = append(b.rows, r)
			d.rows[i] = r
			report(happening{kind: hasAppeared, row: r})
		}
		if b.update(now, r, s, report); r.over {
			d.done[i] = s.ID
		}
	}
}

// newRow is a row to be filled in.
func (b *board) newRow() *row {
	n := len(b.spare)
	if n == 0 {
		return new(row)
	}
	r := b.spare[n-1]
	b.spare = b.spare[:n-1]
	return r
}

// update takes in a launch's stub as it is now.
func (b *board) update(now time.Duration, r *row, s ipc.Launch, report func(happening)) {
	before := r.stub
	s.Asked, s.Deadline, s.BelowSM = before.Asked, before.Deadline, before.BelowSM
	// The count may be ahead of the state.
	there := s.State == slotstate.ToEvict || s.State == slotstate.Running && s.Started == before.Started
	left := s.Evictions != r.evictions && !there
	if before.State == slotstate.ToEvict && s.State == slotstate.Running && !left {
		s.State = slotstate.ToEvict // nobody has said that it may stay
	}
	r.stub = s
	if before.State == slotstate.ToEvict && before.Evictable && !s.Evictable && s.Started == before.Started {
		r.lied = true
		report(happening{kind: hasLied, row: r})
	}
	if left {
		r.evictions, r.asked, r.ahead, r.granted = s.Evictions, false, false, false
		h := happening{kind: hasLeft, row: r}
		// One that was to leave some of the SMs has gone on, on the others.
		if before.State == slotstate.ToEvict && s.BelowSM == math.MaxUint32 {
			h.took = min(max(s.Stopped-s.Asked, 1), max(now-s.Asked, 1))
		}
		r.stub.BelowSM = 0
		report(h)
		if r.announced {
			b.notices = append(b.notices, notice{fairshare.Evicted, r})
		}
	}
	if s.State == slotstate.Done {
		b.end(r, hasEnded, report)
		return
	}
	b.stand(now, r, before.State)
}

// end takes a launch off the board.
func (b *board) end(r *row, how happened, report func(happening)) {
	if r == nil || r.over {
		return
	}
	r.over = true
	r.desk.rows[r.at] = nil
	b.dead = append(b.dead, r)
	report(happening{kind: how, row: r})
	if r.announced {
		b.notices = append(b.notices, notice{fairshare.Finished, r})
	}
}

// lose takes a launch off the board that is not what it was when last seen. If there is
// any, the next look finds it.
func (b *board) lose(r *row, report func(happening)) { b.end(r, isGone, report) }

// anew has everything announced again, to another policy.
func (b *board) anew() {
	b.notices = b.notices[:0]
	for _, r := range b.rows {
		r.told, r.announced = false, false
	}
	b.announce()
}

// announce has the policy told of the launches that it does not know.
func (b *board) announce() {
	for _, r := range b.rows {
		if !r.announced && r.aside == notAside {
			r.announced = true
			b.notices = append(b.notices, notice{fairshare.Arrived, r})
		}
	}
}

// next is the next event for the policy, if there is one.
func (b *board) next() (ev fairshare.Event, ok bool) {
	if len(b.notices) == 0 {
		return ev, false
	}
	n := b.notices[0]
	b.notices = slices.Delete(b.notices, 0, 1)
	n.row.told = n.kind != fairshare.Finished
	return fairshare.Event{Kind: n.kind, Guest: n.row.guest, Launch: n.row.id}, true
}

// launches are those that the policy knows of, at now, on a GPU of so many SMs;
// cost is what taking one off it is expected to cost. They are good until the
// next call.
func (b *board) launches(now time.Duration, sms uint32, cost func(*row) time.Duration) []fairshare.Launch {
	b.shown = b.shown[:0]
	for _, r := range b.rows {
		if !r.told || r.over || r.aside != notAside {
			continue
		}
		s := &r.stub
		l := fairshare.Launch{
			ID: r.id, Guest: r.guest, Context: uint64(s.Context), Arrived: r.arrived, Running: !r.waits(), Priority: s.Priority,
			Blocks: uint64(s.Blocks), PerSM: s.PerSM, Used: r.used(now), Predicted: r.predicted, Evictable: s.Evictable,
			EvictionCost: cost(r),
		}
		switch below, leaves := r.leaves(); {
		case leaves && below >= sms:
			l.Evicting = true
		case leaves:
			l.BelowSM = below
		}
		b.shown = append(b.shown, l)
	}
	return b.shown
}

// row finds a launch that is not over, nil for none.
func (b *board) row(id fairshare.LaunchID) *row {
	for _, r := range b.rows {
		if r.id == id && !r.over {
			return r
		}
	}
	return nil
}

// insist has a launch leave that was to, and was only on its way to the GPU then.
// It reports whether it still is.
func (r *row) insist(now time.Duration) (late bool) {
	if !r.asked {
		return false
	}
	deadline := time.Duration(0)
	if r.within > 0 {
		deadline = now + r.within
	}
	r.evict(r.belowSM, now, deadline)
	return r.asked
}

// run lets a launch go to the GPU at now, or back to the SMs that it was to leave, and
// reports whether that was news.
func (r *row) run(now time.Duration) bool {
	switch {
	case r.over || r.aside != notAside:
		return false
	case r.stub.State == slotstate.Ready && r.slot.Run(r.stub.ID):
		r.stub.State, r.ahead = slotstate.ToRun, false
		r.grant(now)
		return true
	case r.ahead:
		r.ahead = false
		r.grant(now)
		return true
	case r.asked:
		r.asked = false
		return true
	case r.stub.State == slotstate.ToEvict && r.slot.Recall(r.stub.ID):
		r.stub.State = slotstate.Running
		return true
	}
	return false
}

// evict has a launch leave the SMs below belowSM. It must have left by deadline,
// an instant; 0 is none. One that is on its way to the GPU leaves when it is
// there. It reports false where there is nothing to leave.
func (r *row) evict(belowSM uint32, now, deadline time.Duration) bool {
	if r.over || r.aside != notAside || !r.stub.Evictable {
		return false
	}
	switch r.stub.State {
	case slotstate.ToRun:
		if !r.asked {
			r.stub.Asked = now
		}
		r.asked, r.belowSM, r.within = true, belowSM, max(deadline-now, 0)
		return true
	case slotstate.Running, slotstate.ToEvict: // of fewer SMs
		if r.stub.State == slotstate.ToEvict && belowSM <= r.stub.BelowSM {
			return false
		}
		if !r.slot.Evict(r.stub.ID, belowSM, now, deadline) {
			return false // it leaves as many, or has ended, as the next look will show
		}
		r.asked = false
		r.stub.State, r.stub.BelowSM, r.stub.Asked = slotstate.ToEvict, belowSM, now
		return true
	default:
		return false
	}
}

// count counts the launches by where they stand.
func (b *board) count() (n api.Launches) {
	for _, r := range b.rows {
		r.countIn(&n)
	}
	return n
}

// countOf counts a guest's.
func (b *board) countOf(guest fairshare.GuestID) (n api.Launches) {
	for _, r := range b.rows {
		if r.guest == guest {
			r.countIn(&n)
		}
	}
	return n
}

func (r *row) countIn(n *api.Launches) {
	if _, leaves := r.leaves(); r.stub.State == slotstate.Ready {
		n.Waiting++
	} else if leaves {
		n.Leaving++
	} else {
		n.Running++
	}
}
