package accounting

import (
	"cmp"
	"slices"
	"time"
)

// Phase is what one polled phase came to. Its times are GPU time. Start and End are what the GPU's
// clock really showed, since a phase is never exactly as long as planned (LoGA §4.2).
type Phase struct {
	Start, End time.Duration
	// Pauses is the time between its pieces, which was not polled.
	Pauses time.Duration
	// Groups is what each group used, in order of Group. Groups that used nothing are left out.
	Groups []GroupTime
	// Idle is time in which nothing executed, and Switching time in which the engine saved and
	// loaded contexts. Together with all groups' Busy they add up to the phase's Length.
	Idle, Switching time.Duration
	// Switches counts changes from one group to another. A phase in which only one group was seen
	// has none, and all of it belongs to the group seen at its end (LoGA §3.3).
	Switches uint64
	// Guessed is how much of the phase was charged by a guess, because nothing was recorded and the
	// reports of work leave open whose it was. See [RecordMeter].
	Guessed time.Duration
	// Unreported is how long contexts were on the engine, by the hardware's record, that nobody
	// reports about, whether they executed or not.
	Unreported time.Duration
	// Last is the group that executed at the end, if Running is set.
	Last    GroupID
	Running bool
	// EntryOnly is time in which the channel's entry showed work and the busy bit did not, and
	// BusyOnly the reverse. They are set by IdleCompared only.
	EntryOnly, BusyOnly time.Duration
	// Polls counts readings of the status. Gaps counts pairs of readings further apart than
	// Config.Gap on the host's clock, GapTime sums the time in them, and MaxGap is the longest.
	// Time in a gap is attributed like any other time between two polls, so the gaps tell how far
	// the sums can be trusted.
	Polls           uint64
	Gaps            uint64
	GapTime, MaxGap time.Duration
	// CPU is processor time that the polling thread used for it.
	CPU time.Duration
}

// GroupTime is one group's part of a phase.
type GroupTime struct {
	Group GroupID
	// Busy is the time that the group executed.
	Busy time.Duration
	// Switching is the time spent on loading and saving the group. It is not part of Busy.
	Switching time.Duration
	// Runs counts the runs without a context switch that Busy is the sum of. Busy/Runs approximates
	// a command's length (LoGA §5.5).
	Runs uint64
}

// compareGroups orders by group.
func compareGroups(a, b GroupTime) int { return cmp.Compare(a.Group, b.Group) }

// Length returns the polled time: the phase less its pauses.
func (p *Phase) Length() time.Duration { return p.End - p.Start - p.Pauses }

// Busy returns the time that all groups executed.
func (p *Phase) Busy() time.Duration {
	var sum time.Duration
	for i := range p.Groups {
		sum += p.Groups[i].Busy
	}
	return sum
}

// From returns the parts of the groups from one on.
func (p *Phase) From(g GroupID) []GroupTime {
	i, _ := slices.BinarySearchFunc(p.Groups, GroupTime{Group: g}, compareGroups)
	return p.Groups[i:]
}

// Of returns the group's part. A group that was not seen has used nothing.
func (p *Phase) Of(g GroupID) GroupTime {
	i, found := slices.BinarySearchFunc(p.Groups, GroupTime{Group: g}, compareGroups)
	if !found {
		return GroupTime{Group: g}
	}
	return p.Groups[i]
}
