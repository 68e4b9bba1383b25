package quota

import "time"

// Standing is how a guest stands with its quota.
type Standing uint8

const (
	// Free guests are within their quotas.
	Free Standing = iota
	// Capped guests have overdrawn their caps.
	Capped
	// Behind guests lack much of their guarantees.
	Behind
)

const (
	// halfDuty is the least time between two changes of a guest's standing.
	halfDuty = 5 * time.Millisecond
	// creditRounds is how much of its cap a guest may save while it has no work, in rounds, and
	// maxCredit what others keep from it while it has some.
	creditRounds = 2
	maxCredit    = 250 * time.Millisecond
	// maxOverdraft is how long a guest is suspended for its cap at most, whatever it is reported to
	// have used.
	maxOverdraft = 10 * time.Minute
	// surplusRounds is how much use above its guarantee counts for later, in rounds.
	surplusRounds = 2
	// eager is how many times a guest's demand its guarantee may be and still grow at its full
	// rate: some of the time that a guest has the GPU for itself passes unused, which counts as
	// given to it.
	eager = 2
	// maxOwed is how much of a guarantee can be caught up with.
	maxOwed = 500 * time.Millisecond
)

// Meter compares one guest's use with its quota. The zero value is a guest that has used nothing.
type Meter struct {
	// credit is GPU time in nanoseconds that the cap leaves; below 0 it was overdrawn. owed is what
	// the guest lacks of its guarantee.
	credit, owed float64
	// kept is time lately in which others kept the GPU from the guest's work, in nanoseconds.
	kept     float64
	standing Standing
	changed  time.Duration // when the standing last changed
	ever     bool          // whether it ever did
	barred   bool
}

// Use is what a guest did in a phase, in nanoseconds.
type Use struct {
	// Used is GPU time, and Unused time that the guest, which had work, could have used.
	Used, Unused float64
	// Works is the part of the phase, 0 to 1, in which the guest had work, and Demand the part of
	// the GPU that it would use by itself.
	Works, Demand float64
}

// Charge adds a phase of some length. given is the time that the GPU gave to any guest, or had for
// it, and round the mean length of a round.
func (m *Meter) Charge(q Quota, u Use, given float64, length, round time.Duration) {
	m.wait(u, float64(length))
	saved := max(creditRounds*float64(round), m.kept)
	m.credit += q.Cap*float64(length) - u.Used
	m.credit = max(min(m.credit, q.Cap*saved), -q.Cap*float64(maxOverdraft))

	m.owed -= u.Used + u.Unused
	if u.Works > 0 {
		m.owed += u.Works * min(q.Guarantee, eager*u.Demand) * given
	} else {
		m.owed = min(m.owed, 0)
	}
	m.owed = min(max(m.owed, -surplusRounds*float64(round)), float64(maxOwed))
}

// wait adds a phase to the time for which others have kept the GPU from the guest's work. It lapses as
// fast as time passes without work.
func (m *Meter) wait(u Use, length float64) {
	if u.Works == 1 {
		m.kept = float64(maxCredit)
		return
	}
	if m.standing != Capped {
		m.kept += max(u.Works*length-u.Used-u.Unused, 0)
	}
	m.kept = min(max(m.kept-(1-u.Works)*length, 0), float64(maxCredit))
}

// Judge updates the standing at the end of a polling phase. active reports whether the guest has
// work, and tolerated is how much of its guarantee it may lack before others are suspended for it.
func (m *Meter) Judge(q Quota, active bool, tolerated, now time.Duration) {
	was := m.standing
	next := Free
	switch {
	case q.Cap > 0 && m.credit < 0:
		next = Capped
	case active && (m.owed > float64(tolerated) || was == Behind && m.owed > 0):
		next = Behind
	}
	if next != was && (!m.ever || now-m.changed >= halfDuty) {
		m.standing, m.changed, m.ever = next, now, true
	}
	m.barred = was == Capped || m.standing == Capped
}

// Lift drops what is known for a bound that the quota does not have any more.
func (m *Meter) Lift(q Quota) {
	if q.Cap == 0 {
		m.credit, m.barred = 0, false
		if m.standing == Capped {
			m.standing = Free
		}
	}
	if q.Guarantee == 0 {
		m.owed = 0
		if m.standing == Behind {
			m.standing = Free
		}
	}
}

// Reset forgets what is owed either way, as for a guest that is kept from the GPU for another
// reason.
func (m *Meter) Reset() { m.credit, m.owed, m.standing, m.barred = max(m.credit, 0), 0, Free, false }

// Credit returns the GPU time in nanoseconds that the cap leaves; below 0 it was overdrawn.
func (m *Meter) Credit() float64 { return m.credit }

// Inherit has a guest that has used nothing yet begin with the credit of one before it.
func (m *Meter) Inherit(credit float64) {
	if m.credit = min(credit, 0); m.credit < 0 {
		m.standing = Capped
	}
}

// Spend takes GPU time in nanoseconds that the guest used outside of the phases that it is charged
// for.
func (m *Meter) Spend(used float64) { m.credit -= used }

// Standing returns the standing.
func (m *Meter) Standing() Standing { return m.standing }

// Barred reports whether the cap kept the guest from the GPU in some of the newest phase.
func (m *Meter) Barred() bool { return m.barred }
