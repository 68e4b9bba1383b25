package simt

import (
	"container/heap"
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// PTX has an unlimited number of registers, mostly one for each value. Registers that are never
// alive at the same time share one of the warp's, which keeps a warp's registers in the processor's
// cache: linear scan (Poletto and Sarkar, 1999) over live ranges without holes.
//
// Divergence does not affect this. Every lane has its own column of a register and its own way
// through the code, along which the ranges that share a register do not overlap.

// interval is the part of a function in which a register's value may be used: from the read of one
// instruction (2i) or the write of one (2i+1) to another.
type interval struct {
	reg        int
	start, end int
}

// maxLiveness limits the work of finding live ranges: registers alive across blocks times blocks.
// Beyond it, registers are not shared.
const maxLiveness = 1 << 25

// maxPasses limits the passes of data flow. Compilers' code needs as many as the depth of its
// loops, plus two.
const maxPasses = 100

// assign assigns a register of the warp to each register of a function.
func (c *compiler) assign(f *function, g *flow.Graph) {
	f.regs = make([]operand, len(f.code.Regs))
	list, ok := liveRanges(f.code, g)
	if !ok {
		list = list[:0]
		for i := range f.code.Regs {
			list = append(list, interval{i, 0, 2 * len(f.code.Instrs)})
		}
	}
	slices.SortStableFunc(list, func(a, b interval) int { return a.start - b.start })
	var active byEnd
	free := map[regClass][]uint32{}
	used := 0
	for _, iv := range list {
		for len(active) > 0 && active[0].end < iv.start {
			o := f.regs[active[0].reg]
			free[o.class] = append(free[o.class], o.index)
			used -= wordsIn(o.class)
			heap.Pop(&active)
		}
		s := f.code.Regs[iv.reg]
		class := storage(classOf(s.Type))
		if class == noReg {
			continue
		}
		if s.Vector > 0 { // components are adjacent and stay so
			f.regs[iv.reg] = c.newReg(class)
			for range s.Vector - 1 {
				c.newReg(class)
			}
			continue
		}
		if n := len(free[class]); n > 0 {
			f.regs[iv.reg] = operand{index: free[class][n-1], class: class}
			free[class] = free[class][:n-1]
		} else {
			f.regs[iv.reg] = c.newReg(class)
		}
		heap.Push(&active, iv)
		used += wordsIn(class)
		f.pressure = max(f.pressure, used)
	}
	for i, s := range f.code.Regs {
		if f.regs[i].class != noReg {
			f.regs[i].class = classOf(s.Type)
		}
	}
}

// storage returns the class whose bank registers of class share.
func storage(class regClass) regClass {
	if class == reg8 || class == reg16 {
		return reg32
	}
	return class
}

// wordsIn returns the number of 32-bit registers of a real GPU that a value occupies.
func wordsIn(class regClass) int {
	switch class {
	case predReg:
		return 0
	case reg64:
		return 2
	}
	return 1
}

// byEnd is a heap of intervals by their ends.
type byEnd []interval

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].end < h[j].end }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)        { *h = append(*h, x.(interval)) }
func (h *byEnd) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// liveRanges finds where each register's value may be used. It returns false if that is too much
// work.
func liveRanges(code *ptx.Code, g *flow.Graph) ([]interval, bool) {
	n := len(code.Regs)
	ranges := make([]interval, n)
	home := make([]int, n) // the only block that uses the register; -1 for several
	for i := range ranges {
		ranges[i] = interval{i, -1, -1}
		home[i] = -2
	}
	touch := func(r, at int) {
		iv := &ranges[r]
		if iv.start < 0 || at < iv.start {
			iv.start = at
		}
		iv.end = max(iv.end, at)
	}
	for i, in := range code.Instrs {
		b := g.BlockOf(i)
		eachReg(in, func(r int, use registerUse) {
			switch home[r] {
			case -2:
				home[r] = b
			case b:
			default:
				home[r] = -1
			}
			switch use {
			case readsReg, overlaps:
				touch(r, 2*i)
			case writesReg:
				touch(r, 2*i+1)
			default:
				touch(r, 2*i)
				touch(r, 2*i+1)
			}
		})
	}
	// A register that is read before it is written in its only block may keep a value between
	// iterations of a loop, so it is alive across blocks, too.
	across := exposed(code, g, home)
	if len(across)*len(g.Blocks) > maxLiveness {
		return ranges, false
	}
	if !extend(code, g, across, touch) {
		return ranges, false
	}
	out := ranges[:0]
	for _, iv := range ranges {
		if iv.start >= 0 {
			out = append(out, iv)
		}
	}
	return out, true
}

// exposed numbers the registers that may be alive across blocks.
func exposed(code *ptx.Code, g *flow.Graph, home []int) map[int]int {
	across := map[int]int{}
	written := make([]int, len(home)) // the block that last wrote it for all lanes, plus one
	for i, in := range code.Instrs {
		b := g.BlockOf(i)
		var kills []int
		eachReg(in, func(r int, use registerUse) {
			if _, known := across[r]; !known && (home[r] == -1 || use.wants() && written[r] != b+1) {
				across[r] = len(across)
			}
			if use == writesReg {
				kills = append(kills, r)
			}
		})
		for _, r := range kills {
			written[r] = b + 1
		}
	}
	return across
}

// extend extends the ranges of registers over the blocks through which they are alive, by the usual
// backward data flow. It returns false if that is too much work.
func extend(code *ptx.Code, g *flow.Graph, across map[int]int, touch func(r, at int)) bool {
	words := (len(across) + 63) / 64
	blocks := len(g.Blocks)
	in, def := make([]uint64, words*blocks), make([]uint64, words*blocks)
	row := func(set []uint64, b int) []uint64 { return set[b*words : (b+1)*words] }
	for i, instr := range code.Instrs {
		b := g.BlockOf(i)
		uses, defs := row(in, b), row(def, b)
		eachReg(instr, func(r int, use registerUse) {
			if k, ok := across[r]; ok && use.wants() && defs[k/64]>>(k%64)&1 == 0 {
				uses[k/64] |= 1 << (k % 64)
			}
		})
		eachReg(instr, func(r int, use registerUse) {
			if k, ok := across[r]; ok && use == writesReg {
				defs[k/64] |= 1 << (k % 64)
			}
		})
	}
	out := make([]uint64, words*blocks)
	pass := 0
	for changed := true; changed; pass++ {
		if pass == maxPasses {
			return false
		}
		changed = false
		for i := len(g.RPO) - 1; i >= 0; i-- {
			b := g.RPO[i]
			o := row(out, b)
			for _, s := range g.Blocks[b].Succs {
				if s == flow.Exit {
					continue
				}
				for k, v := range row(in, s) {
					o[k] |= v
				}
			}
			x, d := row(in, b), row(def, b)
			for k := range x {
				if v := x[k] | o[k]&^d[k]; v != x[k] {
					x[k], changed = v, true
				}
			}
		}
	}
	for r, k := range across {
		for b := range g.Blocks {
			if row(in, b)[k/64]>>(k%64)&1 != 0 {
				touch(r, 2*g.Blocks[b].First)
			}
			if row(out, b)[k/64]>>(k%64)&1 != 0 {
				touch(r, 2*g.Blocks[b].End)
			}
		}
	}
	return true
}
