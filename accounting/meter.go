package accounting

import (
	"slices"
	"time"
)

// Meter is the accounting core of LoGA §3.3. From what the status showed at successive instants it
// sums the time between context switches. The time between two observations is attributed to what
// the earlier one showed. A switch is thus noticed up to one poll late at both ends of a command,
// which cancels out on average.
//
// Time in which a context is saved or loaded is counted separately, since nothing executes in it,
// and a guest would otherwise pay for its neighbours' switches. It is recorded with the group that
// is loaded, or with the saved one if none is loaded, for users that want to charge it.
//
// The zero Meter is not usable; see [NewMeter]. It is not safe for concurrent use.
type Meter struct {
	mode IdleMode
	gap  time.Duration

	phase  Phase
	shown  shown
	since  time.Duration // when shown began, or the phase if that was later
	last   time.Duration // clock of the newest observation
	owner  GroupID       // newest group that executed
	owned  bool
	polled time.Duration // host time of the newest poll

	groups []GroupTime
	index  [groupIndex]uint16 // group modulo groupIndex -> probable place in groups
}

// groupIndex is the number of group ids that NVIDIA's status register can show.
const groupIndex = 1 << 12

// shown is the part of a status by which time is attributed. Readings that attribute alike are
// equal.
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

// Begin starts a phase with what the status shows at its start. Observations since the last Cut are
// dropped.
func (m *Meter) Begin(st Status) {
	for i := range m.groups {
		m.groups[i].Busy, m.groups[i].Switching, m.groups[i].Runs = 0, 0, 0
	}
	m.phase = Phase{Start: st.Clock, End: st.Clock, Polls: 1}
	m.owned, m.polled = false, 0
	m.since, m.last = st.Clock, st.Clock
	m.shown = shown{}
	m.enter(m.see(st))
}

// Observe adds one reading to the phase.
func (m *Meter) Observe(st Status) {
	m.phase.Polls++
	s := m.see(st)
	if s != m.shown {
		m.close(st.Clock)
		m.enter(s)
	}
	m.last = max(m.last, st.Clock)
}

// Unchanged counts n polls that found the status unchanged.
func (m *Meter) Unchanged(n uint64) { m.phase.Polls += n }

// Host notes the host time of a poll, in order to find gaps between polls. The first call of a
// phase only sets the mark.
func (m *Meter) Host(now time.Duration) {
	if d := now - m.polled; m.polled != 0 && d > m.gap {
		m.phase.Gaps++
		m.phase.GapTime += d
		m.phase.MaxGap = max(m.phase.MaxGap, d)
	}
	m.polled = now
}

// Pause ends a piece of the phase at st. The time until Resume is not watched.
func (m *Meter) Pause(st Status) {
	m.Observe(st)
	m.close(m.last)
	m.polled = 0
}

// Resume continues the phase at st. A group that executes at both ends of a pause may have been
// away in between. That is not a switch that was seen, but a new run begins.
func (m *Meter) Resume(st Status) {
	m.phase.Polls++
	m.phase.Pauses += max(st.Clock-m.last, 0)
	m.last = max(m.last, st.Clock)
	m.since = m.last
	m.shown = shown{}
	m.enter(m.see(st))
}

// Cut ends the phase at st, writes what it came to into p, and begins the next phase at the same
// instant, so that nothing is lost in between. It reuses the memory of p.Groups.
func (m *Meter) Cut(st Status, p *Phase) {
	m.Observe(st)
	m.close(st.Clock)
	m.phase.End = m.last
	m.phase.Last, m.phase.Running = m.shown.group, m.shown.kind == shownBusy

	groups := p.Groups[:0]
	for _, g := range m.groups {
		if g.Busy != 0 || g.Switching != 0 || g.Runs != 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, compareGroups)
	*p = m.phase
	p.Groups = groups
	polled := m.polled // polling goes on
	m.Begin(st)
	m.polled = polled
}

// Executing returns the group that executed at the newest observation.
func (m *Meter) Executing() (g GroupID, running bool) {
	return m.shown.group, m.shown.kind == shownBusy
}

// executesAny reports whether one of the groups executed at the newest observation.
func (m *Meter) executesAny(groups []GroupID) bool {
	g, running := m.Executing()
	return running && slices.Contains(groups, g)
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
	if !goesOn { // a changed flag alone doesn't end a run
		m.slot(s.group).Runs++
	}
}

// slot returns the group's sums.
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
