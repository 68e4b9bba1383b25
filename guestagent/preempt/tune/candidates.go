package tune

import (
	"slices"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// maxCandidates bounds what is measured for a class beside the original.
const maxCandidates = 7

// minWaves is how many times over units must fill the GPU: with fewer, the last of them leave much
// of it idle. Eight waves of units cost an H100 3 % with 62 waves of tasks, one wave 8 % and two 11
// % (coarsened by 8 and 32).
const minWaves = 8

// maxGroup is the largest group that is tried; on an H100, 32 won half a percent over 8.
const maxGroup = 64

// candidates returns the choices worth measuring for a grid of that many tasks, each of which takes
// the time task in one of slots: the choices that can leave within the wanted latency or, if there
// are none, the one of each form that leaves the soonest. A grid that the GPU holds at once has
// none: its blocks have all started before they can be asked to leave. Nor has a kernel that the
// hardware takes off the GPU sooner.
func (p *Parameters) candidates(forms abi.PreemptForm, task time.Duration, tasks uint64, slots int) []abi.Preempt {
	if tasks <= uint64(slots) || p.leavesToHardware(task) {
		return nil
	}
	var all []abi.Preempt
	timely := func(c abi.Preempt) bool { return p.leaves(c, task, tasks, slots) <= p.Latency }
	offer := func(c ...abi.Preempt) {
		for _, c := range c {
			if Offered(c, forms, tasks, slots) && !slices.Contains(all, c) && len(all) < maxCandidates {
				all = append(all, c)
			}
		}
	}
	single := abi.Preempt{Form: abi.PreemptSingle, Group: 1, Every: 1}
	coarse := p.coarse(forms, task, tasks, slots, timely)
	inTime := len(coarse) > 0 && timely(coarse[0])
	if timely(single) || !inTime {
		offer(single)
	}
	if inTime || !timely(single) {
		offer(coarse...)
	}
	// Persistent blocks leave sooner than an early exit of short tasks, which starts all blocks
	// that have not begun.
	offer(p.persistent(task, tasks, slots, timely)...)
	return all
}

// first returns the form of a launch of which nothing is known, or the original if there is none.
// Persistent blocks leave after a task each. An early exit would have to start all blocks that have
// not begun, for a time that is not known: one that is asked to leave sooner than that, again and
// again, would not get on.
func first(forms abi.PreemptForm, tasks uint64, slots int) abi.Preempt {
	if c := (abi.Preempt{Form: abi.PreemptPersistent, Group: 1, Every: 1}); Offered(c, forms, tasks, slots) {
		return c
	}
	return abi.Preempt{}
}

// leavesToHardware reports whether the hardware takes a kernel off the GPU sooner than one of its
// tasks ends.
func (p *Parameters) leavesToHardware(task time.Duration) bool {
	return p.Suspends > 0 && task > p.Suspends
}

// coarse returns the groups worth measuring of those that leave in time, in powers of two: the
// smallest, the one that leaves the soonest, and the largest. If none leaves in time, it returns
// the one that leaves the soonest.
func (p *Parameters) coarse(forms abi.PreemptForm, task time.Duration, tasks uint64, slots int, timely func(abi.Preempt) bool) []abi.Preempt {
	if task > p.Suspension {
		return nil // the hardware suspends a context sooner than two tasks end
	}
	var good []abi.Preempt
	var best abi.Preempt
	for group := uint32(2); group <= maxGroup; group *= 2 {
		c := abi.Preempt{Form: abi.PreemptCoarse, Group: group, Every: 1}
		if !Offered(c, forms, tasks, slots) {
			continue
		}
		if best.Form == 0 || p.leaves(c, task, tasks, slots) < p.leaves(best, task, tasks, slots) {
			best = c
		}
		if units(tasks, group) >= minWaves*uint64(slots) && timely(c) {
			good = append(good, c)
		}
	}
	if len(good) == 0 && best.Form != 0 && units(tasks, best.Group) >= minWaves*uint64(slots) {
		return []abi.Preempt{best}
	}
	return pickThree(good, slices.Index(good, best))
}

// pickThree returns the first and last element and one between, by default the middle.
func pickThree(all []abi.Preempt, between int) []abi.Preempt {
	n := len(all)
	if n <= 3 {
		return all
	}
	if between <= 0 || between >= n-1 {
		between = n / 2
	}
	return []abi.Preempt{all[0], all[between], all[n-1]}
}

// maxChunk is the largest number of tasks per fetch that is tried.
const maxChunk = 16

// minChunk is how long the tasks of a fetch should take: a fetch costs an H100 0.3 to 0.5 µs, so
// that chunks of 1 µs cost 25 to 45 % and more.
const minChunk = 4 * time.Microsecond

// persistent returns the chunks worth measuring: powers of two of tasks per fetch that take long
// enough, leave in time and are numerous enough. Each fetch has its check: a longer chunk saves
// both.
func (p *Parameters) persistent(task time.Duration, tasks uint64, slots int, timely func(abi.Preempt) bool) []abi.Preempt {
	var all []abi.Preempt
	for chunk := uint32(1); chunk <= maxChunk; chunk *= 2 {
		c := abi.Preempt{Form: abi.PreemptPersistent, Group: chunk, Every: 1}
		if chunk > 1 && (!timely(c) || units(tasks, chunk) < minWaves*uint64(slots)) {
			break
		}
		if n := len(all); n > 0 && time.Duration(all[n-1].Group)*task < minChunk {
			all = all[:n-1]
		}
		all = append(all, c)
	}
	return pickThree(all, 0)
}
