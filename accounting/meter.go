package accounting

import (
	"slices"
	"time"
)

// Meter is the accounting core of LoGA §3.3: fed with what the status showed at
// successive instants, it sums the time between context switches. The time
// between two observations belongs to what the earlier one showed: a switch is
// noticed up to one poll late at both ends of a command, which cancels out on
// average.
//
// Time in which a context is saved or loaded is counted apart, since nobody
// computes in it, and a guest would otherwise pay for its neighbours'
// eagerness to switch. It is noted with the group that is loaded, or with the
// one saved where nothing is, for those who want to charge it.
//
// The zero Meter is not usable; see [NewMeter]. It is not safe for concurrent
// use.
type Meter struct {
	mode IdleMode
	gap  time.Duration

	phase  Phase
	shown  shown
	since  time.Duration // when shown began, or the phase
	last   time.Duration // clock of the newest observation
	owner  GroupID       // newest group that executed
	owned  bool
	polled time.Duration // host time of the newest poll

	groups []GroupTime
	index  [groupIndex]uint16 // group modulo groupIndex -> place in groups, hint
}

// groupIndex is the number of group ids that NVIDIA's status register can show.
const groupIndex = 1 << 12

// shown is the part of a status that time is attributed by. It is comparable,
// and equal for readings that attribute alike.
type shown struct {
	kind      shownKind
	group     GroupID
	entryOnly bool
	busyOnly  bool
}

type shownKind uint8

const (
	shownIdle shownKind = iota
	shownBusy
	shownSwitch
)

// NewMeter returns a meter that tells idle from busy as c says.
func NewMeter(c Config) *Meter {
	c = c.WithDefaults()
	return &Meter{mode: c.Idle, gap: c.Gap}
}

// Begin starts a phase with what the status shows at its start. What was
// observed since the last Cut is forgotten.
func (m *Meter) Begin(st Status) {
	for i := range m.groups {
		m.groups[i].Busy, m.groups[i].Switching, m.groups[i].Spans = 0, 0, 0
	}
	m.phase = Phase{Start: st.Clock, End: st.Clock, Polls: 1}
	m.owned, m.polled = false, 0
	m.since, m.last = st.Clock, st.Clock
	m.shown = shown{}
	m.enter(m.see(st))
}

// Observe takes one more reading of the phase.
func (m *Meter) Observe(st Status) {
	m.phase.Polls++
	s := m.see(st)
	if s != m.shown {
		m.close(st.Clock)
		m.enter(s)
	}
	m.last = max(m.last, st.Clock)
}

// Unchanged notes n polls that found the status as it was.
func (m *Meter) Unchanged(n uint64) { m.phase.Polls += n }

// Host notes the host's time of a poll, to find the gaps between polls. The
// first call of a phase only sets the mark.
func (m *Meter) Host(now time.Duration) {
	if d := now - m.polled; m.polled != 0 && d > m.gap {
		m.phase.Gaps++
		m.phase.GapTime += d
		m.phase.MaxGap = max(m.phase.MaxGap, d)
	}
	m.polled = now
}

// Pause ends a piece of the phase at st: what comes now is not watched, until
// Resume.
func (m *Meter) Pause(st Status) {
	m.Observe(st)
	m.close(m.last)
	m.polled = 0
}

// Resume goes on with the phase at st. A group that executes at both ends of a
// pause may have been away meanwhile, which is no switch that was seen, but the
// span counts anew.
func (m *Meter) Resume(st Status) {
	m.phase.Polls++
	m.phase.Pauses += max(st.Clock-m.last, 0)
	m.last = max(m.last, st.Clock)
	m.since = m.last
	m.shown = shown{}
	m.enter(m.see(st))
}

// Cut ends the phase at st, writes what it came to into p, and begins the next
// phase at the same instant, so that nothing is lost in between. It reuses the
// memory of p.Groups.
func (m *Meter) Cut(st Status, p *Phase) {
	m.Observe(st)
	m.close(st.Clock)
	m.phase.End = m.last
	m.phase.Last, m.phase.Running = m.shown.group, m.shown.kind == shownBusy

	groups := p.Groups[:0]
	for _, g := range m.groups {
		if g.Busy != 0 || g.Switching != 0 || g.Spans != 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b GroupTime) int { return int(a.Group) - int(b.Group) })
	*p = m.phase
	p.Groups = groups
	polled := m.polled // polling goes on
	m.Begin(st)
	m.polled = polled
}

// Executing is the group that executed at the newest observation.
func (m *Meter) Executing() (g GroupID, running bool) {
	return m.shown.group, m.shown.kind == shownBusy
}

// see reduces a status to what time is attributed by.
func (m *Meter) see(st Status) shown {
	switch st.Switch {
	case Saving:
		return shown{kind: shownSwitch, group: st.Group}
	case Loading, Switching:
		return shown{kind: shownSwitch, group: st.Next}
	}
	if !st.Valid {
		return shown{}
	}
	pending := st.Entry != EntryIdle
	busy := st.Busy
	var s shown
	switch m.mode {
	case IdleByEntry:
		busy = pending
	case IdleCompared:
		if st.Entry != EntryUnknown {
			s.entryOnly = pending && !busy
			s.busyOnly = busy && !pending
		}
	}
	if busy {
		s.kind, s.group = shownBusy, st.Group
	}
	return s
}

// close attributes the time since the newest change.
func (m *Meter) close(now time.Duration) {
	d := now - m.since
	if d < 0 {
		d = 0 // a clock that was read across a carry; the next reading makes up for it
	} else {
		m.since = now
	}
	switch m.shown.kind {
	case shownIdle:
		m.phase.Idle += d
	case shownBusy:
		m.slot(m.shown.group).Busy += d
	case shownSwitch:
		m.phase.Switching += d
		m.slot(m.shown.group).Switching += d
	}
	if m.shown.entryOnly {
		m.phase.EntryOnly += d
	}
	if m.shown.busyOnly {
		m.phase.BusyOnly += d
	}
}

// enter makes s what is shown from here on.
func (m *Meter) enter(s shown) {
	goesOn := m.shown.kind == shownBusy && m.shown.group == s.group
	m.shown = s
	if s.kind != shownBusy {
		return
	}
	if m.owned && m.owner != s.group {
		m.phase.Switches++
	}
	m.owner, m.owned = s.group, true
	if !goesOn { // a changed flag alone doesn't end a span
		m.slot(s.group).Spans++
	}
}

// slot finds the group's sums.
func (m *Meter) slot(g GroupID) *GroupTime {
	hint := &m.index[g%groupIndex]
	if i := int(*hint); i < len(m.groups) && m.groups[i].Group == g {
		return &m.groups[i]
	}
	i := slices.IndexFunc(m.groups, func(t GroupTime) bool { return t.Group == g })
	if i < 0 {
		i = len(m.groups)
		m.groups = append(m.groups, GroupTime{Group: g})
	}
	*hint = uint16(i)
	return &m.groups[i]
}
