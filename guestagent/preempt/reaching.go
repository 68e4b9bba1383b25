package preempt

import "slices"

// place is the beginning of a block, as far as a register is concerned.
type place struct {
	block int
	reg   int32
}

// reaching lists the instructions that may have given register x what it holds before instruction at.
func (s *spins) reaching(x int32, at int) []int32 {
	if len(s.defs[x]) == 1 {
		return s.defs[x]
	}
	b := s.f.graph.BlockOf(at)
	list, done := s.latest(nil, x, s.f.graph.Blocks[b].First, at)
	if done {
		return list
	}
	return append(list, s.entering(x, b)...)
}

// latest appends to list the writes of x in [first, end) that may be the latest, and reports whether one of them must be.
func (s *spins) latest(list []int32, x int32, first, end int) ([]int32, bool) {
	n, _ := slices.BinarySearch(s.defs[x], int32(end))
	for n--; n >= 0 && int(s.defs[x][n]) >= first; n-- {
		list = append(list, s.defs[x][n])
		if !s.f.code.Instrs[s.defs[x][n]].Guarded() {
			return list, true
		}
	}
	return list, false
}

// entering lists the writes of x that reach the beginning of block b. It is of no use once the work is exhausted.
func (s *spins) entering(x int32, b int) []int32 {
	blocks := s.f.graph.Blocks
	list, known := s.reach[place{b, x}]
	if known {
		return list
	}
	seen := map[int]bool{}
	for work := []int{b}; len(work) > 0 && !s.exhausted(); {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range blocks[at].Preds {
			if seen[p] || !blocks[p].Reachable {
				continue
			}
			seen[p] = true
			s.work++
			var done bool
			if list, done = s.latest(list, x, blocks[p].First, blocks[p].End); !done {
				work = append(work, p)
			}
		}
	}
	s.work += len(list)
	s.reach[place{b, x}] = list
	return list
}
