package daemon

import (
	"math"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// For how long others wait for a guest that has its turn and shows no life.
const (
	// turnLimit is for how long a launch may have the turn and leave the GPU idle while
	// others wait. An executor puts one on the GPU in less than 0.1 ms, some more where the
	// host has no processor for it; one that takes fifty times as long does something
	// else, as to translate a module.
	turnLimit = 5 * time.Millisecond
	// restLeast and restMost are for how long its guest's launches are then not
	// considered: twice as long each time, and as at first when there was none for
	// restMost. So a guest leaves the GPU idle for some 5 % of the time at the most, however
	// it goes about it.
	restLeast = turnLimit
	restMost  = 64 * turnLimit
	// doubtMost is for how long, in all, launches of a guest are taken to have the GPU that
	// nobody has let there. Executors let themselves there when the daemon was silent, and
	// when a context is put back: that is an exception, and forgotten in doubtFades times as
	// long as it took.
	doubtMost  = ipc.SilenceLimit
	doubtFades = 64
	// limitGrace is how many times as long as its time limit a launch may have the GPU, with
	// link.LiarLimit on top: the limit is of GPU time, and the executor's to keep.
	limitGrace = 2
	// leaveGrace is how many times as long as it may take to leave one that is to leave
	// counts as about to.
	leaveGrace = 2
)

// aside is why a launch is none to the policy.
type aside uint8

const (
	notAside aside = iota // it is one
	resting               // its guest did not use a turn, and has none for a while
	forsaken              // it says for too long that it has the GPU
)

// standing is what is made of what an executor says of a launch.
type standing struct {
	aside aside
	// granted is whether it is on the GPU by a verdict, and strange whether it is there
	// without one and was counted as that.
	granted, strange bool
	since            time.Duration // the newest instant at which nothing but it kept the GPU idle
	ready            time.Duration // since when it waits
	on               time.Duration // since when it has the GPU
}

// credit is what is made of what a guest's executors say.
type credit struct {
	rest, pause time.Duration // until when its launches are not considered, and for how long that is
	doubt       time.Duration // see doubtMost
	waiting     int           // launches that wait, by the newest census
	strangers   int           // launches on the GPU that nobody let there
}

// census counts the launches that a policy is shown.
type census struct {
	waiting int
	on      int // the GPU
}

// takeCensus counts anew.
func (b *board) takeCensus() {
	b.census = census{}
	for _, r := range b.rows {
		r.desk.waiting, r.desk.strangers = 0, 0
	}
	for _, r := range b.rows {
		switch {
		case r.over || r.aside != notAside:
		case r.waits():
			b.census.waiting++
			r.desk.waiting++
		default:
			if r.stub.State != slotstate.ToRun {
				b.census.on++
			}
			if r.strange {
				r.desk.strangers++
			}
		}
	}
}

// othersWait is whether launches of other guests do.
func (b *board) othersWait(d *desk) bool { return b.census.waiting > d.waiting }

// keepClocks takes in the time since the last look.
func (b *board) keepClocks(now time.Duration) {
	b.takeCensus()
	if b.census.on == 0 {
		return
	}
	for _, r := range b.rows {
		r.since = now // of those that have it, others had the GPU
	}
}

// fade takes in the time since the last look.
func (b *board) fade(now time.Duration, d *desk) {
	elapsed := max(now-b.looked, 0)
	if d.strangers > 0 && b.othersWait(d) {
		d.doubts(elapsed)
	} else {
		d.doubt = max(d.doubt-elapsed/doubtFades, 0)
	}
	d.waiting, d.strangers = 0, 0
}

func (c *credit) doubts(d time.Duration) { c.doubt += min(d, doubtMost-c.doubt) }

// rests has the guest's launches not be considered for a while.
func (c *credit) rests(now time.Duration) {
	if now-c.rest >= restMost || c.pause == 0 {
		c.pause = restLeast
	} else {
		c.pause = min(2*c.pause, restMost)
	}
	c.rest = now + c.pause
}

// grant takes note that it is a launch's turn from now on.
func (r *row) grant(now time.Duration) {
	r.granted, r.strange = true, false
	r.since, r.on = now, now
	r.stub.BelowSM = 0
}

// stand takes in where a launch stands now, and stood before.
func (b *board) stand(now time.Duration, r *row, before slotstate.State) {
	d, s := r.desk, r.stub.State
	if !s.OnGPU() {
		if before != s {
			r.ready = now
		}
		r.granted, r.strange, r.asked = false, false, false
		if r.aside == forsaken {
			r.aside = notAside
		}
		if now < d.rest {
			b.putAside(r, resting)
		}
		return
	}
	switch {
	case s == slotstate.ToRun:
		if before != s {
			r.since = now
		}
	case before != slotstate.Running && before != slotstate.ToEvict:
		r.on = now
	}
	if s != slotstate.ToRun && r.aside == resting {
		r.aside = notAside // it is there, late as it was
	}
	r.granted = r.granted || !d.turns
	if !r.granted && !r.ahead && !r.strange {
		r.strange = true
		d.doubts(turnLimit)
	}
}

// putAside makes a launch none to the policy, which is told that it has ended.
func (b *board) putAside(r *row, why aside) {
	r.aside = why
	if r.announced {
		r.announced = false
		b.notices = append(b.notices, notice{fairshare.Finished, r})
	}
}

// due is when there is something to be done about a launch that doesn't go on.
func (b *board) due(r *row) (at time.Duration, ok bool) {
	d := r.desk
	switch {
	case r.over || !d.turns:
		return 0, false
	case r.aside == resting:
		return d.rest, true
	case r.aside != notAside || r.ahead:
		return 0, false
	case r.stub.State == slotstate.ToRun && r.asked:
		return r.stub.Asked + turnLimit, true
	case !b.othersWait(d):
		return 0, false
	}
	at = math.MaxInt64
	switch r.stub.State {
	case slotstate.ToRun:
		if b.census.on == 0 {
			at = r.since + turnLimit
		}
	case slotstate.Running, slotstate.ToEvict:
		if d.limit > 0 {
			at = r.on + limitGrace*d.limit + ipc.UnresponsiveLimit
		}
		if below, leaves := r.leaves(); leaves && below == math.MaxUint32 && b.leaving > 0 {
			at = min(at, r.stub.Asked+leaveGrace*b.leaving)
		}
	}
	if r.strange {
		at = min(at, b.looked+doubtMost-d.doubt)
	}
	return at, at < math.MaxInt64
}

// lookHard deals at now, after a look, with launches that don't go on while others wait.
func (b *board) lookHard(now time.Duration, report func(happening)) {
	b.takeCensus()
	for _, r := range b.rows {
		at, ok := b.due(r)
		switch {
		case !ok || now < at:
		case r.aside == resting:
			r.aside = notAside
		case r.stub.State == slotstate.ToRun:
			b.withdraw(now, r, report)
		default:
			b.putAside(r, forsaken)
			report(happening{kind: isForsaken, row: r})
		}
	}
}

// nextDue is when to look again for the sake of launches that don't go on, if ever.
func (b *board) nextDue() (next time.Duration, ok bool) {
	b.takeCensus()
	next = math.MaxInt64
	for _, r := range b.rows {
		if at, ok := b.due(r); ok {
			next = min(next, at)
		}
	}
	return next, next < math.MaxInt64
}

// withdraw takes its turn back from a launch, and lets its guest rest.
func (b *board) withdraw(now time.Duration, r *row, report func(happening)) {
	if !r.slot.Withdraw(r.stub.ID) {
		return // the next look shows what has become of it
	}
	idle := time.Duration(0)
	if !r.asked {
		// More would be this daemon's own delay.
		idle = min(now-max(r.since, b.waitFrom(r.desk)), 2*turnLimit)
	}
	r.stub.State, r.ready = slotstate.Ready, now
	r.granted, r.strange, r.asked = false, false, false
	if now >= r.desk.rest {
		r.desk.rests(now)
	} else {
		idle = 0 // so it was for another launch of the guest's
	}
	for _, o := range b.rows {
		if o.desk == r.desk && !o.over && o.aside == notAside && o.stub.State == slotstate.Ready {
			b.putAside(o, resting)
		}
	}
	report(happening{kind: hasIdled, row: r, took: max(idle, 0)})
}

// waitFrom is since when another guest's launch waits.
func (b *board) waitFrom(d *desk) time.Duration {
	from := time.Duration(math.MaxInt64)
	for _, r := range b.rows {
		if r.desk != d && !r.over && r.aside == notAside && r.waits() {
			from = min(from, r.ready)
		}
	}
	return from
}
