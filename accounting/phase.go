package accounting

import (
	"slices"
	"time"
)

// Phase is what one watched phase came to. Its times are GPU time, and
// Start and End are where the GPU's clock really stood, since a phase is never
// exactly as long as planned (LoGA §4.2).
type Phase struct {
	Start, End time.Duration
	// Pauses is how much of it was not watched: the time between its pieces.
	Pauses time.Duration
	// Groups is what each group used, those with nothing left out, in order of
	// Group.
	Groups []GroupTime
	// Idle is time in which nothing executed, and Switching time in which the
	// engine saved and loaded contexts. With all groups' Busy they add up to
	// the phase's Length.
	Idle, Switching time.Duration
	// Switches counts changes from one group to another. A phase in which the
	// same group was seen all along has none, and goes to the group seen at its
	// end (LoGA §3.3).
	Switches uint64
	// Last is the group that was executing at the end, where Running is true.
	Last    GroupID
	Running bool
	// EntryOnly is time in which the channel's entry showed work and the busy
	// bit none, and BusyOnly the other way round: IdleCompared only.
	EntryOnly, BusyOnly time.Duration
	// Polls counts readings of the status, Gaps pairs of readings further apart
	// than Config.Gap on the host's clock, GapTime the time in them and MaxGap
	// the longest. What happened in a gap is attributed like any other time
	// between two polls, so the gaps say how far the sums can be trusted.
	Polls           uint64
	Gaps            uint64
	GapTime, MaxGap time.Duration
	// CPU is host time that the polling thread used for it.
	CPU time.Duration
}

// GroupTime is one group's part of a phase.
type GroupTime struct {
	Group GroupID
	// Busy is how long the group executed.
	Busy time.Duration
	// Switching is time spent loading the group and putting it away. It is not
	// part of Busy.
	Switching time.Duration
	// Spans counts the times between two context switches that Busy is the sum
	// of; Busy/Spans approximates a command's length (LoGA §5.5).
	Spans uint64
}

// Length is how long was really watched: the phase less its pauses.
func (p *Phase) Length() time.Duration { return p.End - p.Start - p.Pauses }

// Busy is how long all groups executed.
func (p *Phase) Busy() time.Duration {
	var sum time.Duration
	for i := range p.Groups {
		sum += p.Groups[i].Busy
	}
	return sum
}

// Of is the group's part; a group not seen has used nothing.
func (p *Phase) Of(g GroupID) GroupTime {
	i, found := slices.BinarySearchFunc(p.Groups, g, func(t GroupTime, g GroupID) int { return int(t.Group) - int(g) })
	if !found {
		return GroupTime{Group: g}
	}
	return p.Groups[i]
}
