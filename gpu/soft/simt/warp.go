package simt

import (
	"vgpud/gpu"
)

// warp is 32 threads with their registers. The fields from mask to sp describe the running path;
// the others are in paths.
type warp struct {
	r32  [][lanes]uint32
	r64  [][lanes]uint64
	pred []uint32 // each is a mask of lanes

	mask  uint32 // lanes of the path
	pc    int32
	spins int32 // weighted iterations of loops since the path last yielded
	frame *frame
	join  *join  // where it reconverges with other lanes next
	sp    uint32 // start of the local memory of its activation

	paths     []path // the other paths
	live      uint32 // lanes that have not exited
	present   uint32 // lanes that exist: all except in a block's last warp
	state     warpState
	watch     *watch // nil unless each instruction is looked at
	freeJoin  *join
	freeFrame *frame
	calls     *frame // activations called from the kernel itself
	carry     uint32 // CF of the condition code, a mask of lanes

	off    [lanes]int // offsets of the current memory operation
	budget int
	counts Counts

	block      *Block
	grid       *Grid
	prog       *program
	index      uint32 // in the block
	local      []byte
	localBytes int // of one lane
	shared     []byte
	fault      *gpu.Fault
}

type warpState uint8

const (
	warpReady   warpState = iota // has a path to run
	warpWaiting                  // for a barrier or a time
	warpDone                     // all lanes have exited
)

// execute runs the warp until its budget is spent, it has to wait, or it yields to the block's
// other warps.
func (w *warp) execute(budget int) {
	w.budget = budget
	code := w.prog.code
	for w.budget > 0 {
		in := &code[w.pc]
		if n := in.run; n > 0 {
			w.tally(int(n), in.cost)
			block := code[w.pc : w.pc+int32(n)]
			// There are four places of the call because the processor predicts the target of an
			// indirect call also from its address. With one place a lane that is alone took half as
			// long again.
			for len(block) >= 4 {
				next := (*[4]inst)(block)
				next[0].op(w, &next[0])
				next[1].op(w, &next[1])
				next[2].op(w, &next[2])
				next[3].op(w, &next[3])
				block = block[4:]
			}
			for i := range block {
				block[i].op(w, &block[i])
			}
			if w.fault != nil {
				return
			}
			w.pc += int32(n)
			if in = &code[w.pc]; in.run > 0 {
				continue
			}
		}
		w.tally(1, in.cost)
		in.op(w, in)
		if w.fault != nil {
			return
		}
	}
}

// tally counts n instructions of the running path.
func (w *warp) tally(n int, cycles uint64) {
	w.budget -= n
	w.counts.WarpInstructions += uint64(n)
	w.counts.ThreadInstructions += uint64(n * popcount(w.mask)) // in two's complement, since n may be -1
	w.counts.Cycles += cycles
}

// guard executes an instruction for the lanes whose predicate is true.
func guard(w *warp, in *inst) {
	x := in.x
	m := w.mask
	if on := m & (w.pred[x.guard] ^ x.unless); on != 0 {
		w.mask = on
		x.guarded(w, in)
		w.mask = m
	}
}
