package machine

import (
	"cmp"
	"slices"
)

// engine is what executes under [Exclusive] and [Slices]: launches of different channels of one
// group, whose blocks are resident side by side.
type engine struct {
	launches []*Launch
	free     []Resources // by SM
	order    []int       // of SMs, reused
}

func (e *engine) init(cfg Config) {
	e.free = slices.Repeat([]Resources{cfg.SM}, cfg.SMs)
	e.order = make([]int, cfg.SMs)
}

// empty reports whether nothing executes.
func (e *engine) empty() bool { return len(e.launches) == 0 }

// group returns the group whose launches execute, or nil.
func (e *engine) group() *Group {
	if e.empty() {
		return nil
	}
	return e.launches[0].channel.group
}

// has reports whether l executes.
func (e *engine) has(l *Launch) bool { return slices.Contains(e.launches, l) }

// place finds SMs for the blocks of l, and reports whether they fit beside what executes: all that
// l would have resident with the machine to itself. A launch that has executed before goes back to
// its SMs. One without blocks fits an empty machine.
func (m *Machine) place(l *Launch) bool {
	e := &m.on
	most := min(l.Blocks, uint64(m.cfg.Occupancy(l.Need))*uint64(m.cfg.SMs))
	switch {
	case most == 0:
		l.placed = nil
		return e.empty()
	case l.state == begun && l.placed != nil:
		for sm, n := range l.placed {
			if e.free[sm].times(l.block1()) < n {
				return false
			}
		}
		return true
	case len(e.launches) > 0 && e.launches[0].placed == nil:
		return false
	}
	for sm := range e.order {
		e.order[sm] = sm
	}
	if !e.empty() {
		slices.SortStableFunc(e.order, func(a, b int) int { return cmp.Compare(e.free[b].Threads, e.free[a].Threads) })
	}
	l.placed = slices.Grow(l.placed[:0], len(e.free))[:len(e.free)]
	clear(l.placed)
	return spread(l.placed, e.free, e.order, l.block1(), most) == most
}

// spread places up to most blocks, one on each SM in turn as long as there is room, and returns how
// many it placed.
func spread(placed []int, free []Resources, order []int, need Resources, most uint64) (n uint64) {
	for more := true; more && n < most; {
		more = false
		for _, sm := range order {
			if n < most && placed[sm] < free[sm].times(need) {
				placed[sm]++
				n++
				more = true
			}
		}
	}
	return n
}

// block1 returns the resources of one block.
func (l *Launch) block1() Resources {
	need := l.Need
	need.Blocks = 1
	return need
}

// Placed returns how many of the launch's blocks are resident on each SM at a time. It is nil for a
// launch without blocks, and before the launch has executed.
func (l *Launch) Placed() []int { return l.placed }

// add puts l, which [Machine.place] has placed, on the engine.
func (e *engine) add(l *Launch) {
	for sm, n := range l.placed {
		e.free[sm] = e.free[sm].add(l.block1(), -n)
	}
	e.launches = append(e.launches, l)
}

// remove takes l off the engine, and reports whether it was on it.
func (e *engine) remove(l *Launch) bool {
	i := slices.Index(e.launches, l)
	if i < 0 {
		return false
	}
	e.launches = slices.Delete(e.launches, i, i+1)
	for sm, n := range l.placed {
		e.free[sm] = e.free[sm].add(l.block1(), n)
	}
	return true
}
