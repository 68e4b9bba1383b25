package accountingtest

import (
	"slices"
	"time"

	"vgpud/accounting"
)

// Sums is an [accounting.Handler] that keeps and adds up the phases that it is given. The zero
// value answers with the zero plan.
type Sums struct {
	// Plan makes the answer at the end of a polling phase, if it is set.
	Plan func(*accounting.Phase) accounting.Plan
	// Total adds up all that was polled: Length, Groups, Idle, Switching and Polls.
	Total accounting.Phase
	// Phases and Quiets are what came.
	Phases []accounting.Phase
	Quiets []accounting.Quiet
	// Unwatched is how long the GPU was not polled.
	Unwatched time.Duration
	// Failure is the error of Failed.
	Failure error
}

// PollEnded implements [accounting.Handler].
func (s *Sums) PollEnded(p *accounting.Phase) accounting.Plan {
	s.Phases = append(s.Phases, s.add(p))
	if s.Plan == nil {
		return accounting.Plan{}
	}
	return s.Plan(p)
}

// QuietEnded implements [accounting.Handler].
func (s *Sums) QuietEnded(q *accounting.Quiet) {
	copied := *q
	copied.Watched = s.add(&q.Watched)
	s.Quiets = append(s.Quiets, copied)
	s.Unwatched += q.Unwatched
}

// Failed implements [accounting.Handler].
func (s *Sums) Failed(err error) { s.Failure = err }

// AddTotals adds a phase to t, except for its groups.
func AddTotals(t, p *accounting.Phase) {
	t.End += p.Length()
	t.Idle += p.Idle
	t.Switching += p.Switching
	t.Switches += p.Switches
	t.Polls += p.Polls
	t.EntryOnly += p.EntryOnly
	t.BusyOnly += p.BusyOnly
}

// add adds a phase to the total and returns a copy of it.
func (s *Sums) add(p *accounting.Phase) accounting.Phase {
	t := &s.Total
	AddTotals(t, p)
	for _, g := range p.Groups {
		i, found := slices.BinarySearchFunc(t.Groups, g.Group, func(t accounting.GroupTime, id accounting.GroupID) int { return int(t.Group) - int(id) })
		if !found {
			t.Groups = slices.Insert(t.Groups, i, accounting.GroupTime{Group: g.Group})
		}
		t.Groups[i].Busy += g.Busy
		t.Groups[i].Switching += g.Switching
		t.Groups[i].Runs += g.Runs
	}
	copied := *p
	copied.Groups = slices.Clone(p.Groups)
	return copied
}

// Sample runs a sampler of sim until t and returns what it came to.
func Sample(sim accounting.Simulation, c accounting.Config, t time.Duration) (*Sums, error) {
	sums := new(Sums)
	s, err := accounting.NewSimulatedSampler(sim, sums, c)
	if err == nil {
		err = s.RunUntil(t)
	}
	return sums, err
}
