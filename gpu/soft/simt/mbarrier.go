package simt

import (
	"encoding/binary"

	"vgpud/ptx"
)

// The state of an mbarrier object in the 64 bits whose format PTX leaves open.
const (
	mbarPending  = 0       // 20 bits: arrivals that the phase still waits for
	mbarExpected = 20      // 20 bits: arrivals of a phase
	mbarTx       = 40      // 23 bits, biased: bytes that the phase still waits for
	mbarPhase    = 1 << 63 // changes when a phase completes
	mbarCount    = 1<<20 - 1
	mbarTxBias   = 1 << 22
	mbarTxMask   = 1<<23 - 1
)

// mbarrier is the decoded state of an object.
type mbarrier struct {
	pending, expected uint64
	tx                int64
	phase             uint64
}

func readMbarrier(v uint64) mbarrier {
	return mbarrier{v >> mbarPending & mbarCount, v >> mbarExpected & mbarCount, int64(v>>mbarTx&mbarTxMask) - mbarTxBias, v & mbarPhase}
}

func (b mbarrier) bits() uint64 {
	return b.pending&mbarCount<<mbarPending | b.expected&mbarCount<<mbarExpected | uint64(b.tx+mbarTxBias)&mbarTxMask<<mbarTx | b.phase
}

// settle completes the phase if nothing is pending.
func (b mbarrier) settle() mbarrier {
	if b.pending == 0 && b.tx == 0 {
		b.pending = b.expected
		b.phase ^= mbarPhase
	}
	return b
}

// update returns the object after an instruction other than a wait, with its count n. tx tells of an
// arrival that n is the bytes of, which the phase waits for from now on.
func (b mbarrier) update(op string, n uint64, tx bool) mbarrier {
	switch op {
	case "init":
		return mbarrier{pending: n, expected: n}
	case "inval":
		return mbarrier{}
	case "expect_tx":
		b.tx += int64(n)
		return b
	case "complete_tx":
		b.tx -= int64(n)
		return b.settle()
	}
	if tx {
		b.tx += int64(n)
		n = 1
	}
	b.pending -= n
	if op == "arrive_drop" {
		b.expected -= n
	}
	return b.settle()
}

// mbarrierOp compiles the mbarrier instructions for one block.
func mbarrierOp(c *compiler, in *ptx.Instr, m *mods) error {
	op := m.any("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "expect_tx", "complete_tx", "pending_count")
	wait, arrival := op == "test_wait" || op == "try_wait", op == "arrive" || op == "arrive_drop"
	parity, tx := m.has("parity"), arrival && m.has("expect_tx")
	m.skip("noComplete", "relaxed", "acquire", "release", "cta", "cluster")
	space := m.space()
	if t := m.typ(); t != ptx.B64 && !(t == ptx.NoType && (op == "expect_tx" || op == "complete_tx")) || op == "" {
		return c.unsupported("this form of mbarrier")
	}
	if op == "pending_count" {
		return c.simple(in, lift1(func(a uint64) uint32 { return uint32(readMbarrier(a).pending) }), c.costs().Simple, ptx.B32, ptx.B64)
	}
	ops := in.Operands
	var d operand
	var err error
	switch {
	case wait && len(ops) < 3:
		return c.invalid("%d operands", len(ops))
	case wait:
		d, err = c.dstPred(&ops[0])
		ops = ops[1:]
	case arrival && len(ops) > 1 && ops[0].Kind != ptx.KindAddr:
		if d, err = c.anyDst(&ops[0]); err == nil && d.class != noReg && d.class != reg64 {
			err = c.invalid("a state of less than 64 bits")
		}
		ops = ops[1:]
	}
	if err != nil {
		return err
	}
	if len(ops) == 0 {
		return c.invalid("no address")
	}
	p, err := c.pointer(&ops[0], space)
	if err != nil {
		return err
	}
	if wait && !parity {
		state, err := c.src(&ops[1], ptx.B64)
		if err != nil {
			return err
		}
		mbarrierWait(c, p, d, func(w *warp, i int) uint64 { return w.r64[state.index][i] & mbarPhase })
		return nil
	}
	count := c.constant(reg32, 1)
	if len(ops) > 1 {
		if count, err = c.src(&ops[1], ptx.B32); err != nil {
			return err
		}
	}
	if wait {
		mbarrierWait(c, p, d, func(w *warp, i int) uint64 { return uint64(w.r32[count.index][i]) << 63 })
		return nil
	}
	c.memory(p, d, 8, true, func(w *warp, in *inst, data []byte) {
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := data[w.off[i]:]
			old := binary.LittleEndian.Uint64(p)
			b := readMbarrier(old).update(op, uint64(w.r32[count.index][i]), tx)
			binary.LittleEndian.PutUint64(p, b.bits())
			if d.class == reg64 {
				w.r64[d.index][i] = old
			}
		}
	})
	return nil
}

// mbarrierWait compiles a wait: it sets d for each lane whose phase, which the lane names, has completed.
func mbarrierWait(c *compiler, p place, d operand, phase func(w *warp, lane int) uint64) {
	c.memory(p, d, 8, true, func(w *warp, in *inst, data []byte) {
		var done uint32
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			b := readMbarrier(binary.LittleEndian.Uint64(data[w.off[i]:]))
			done |= bit(phase(w, i) != b.phase) << i
		}
		if d.class == predReg {
			w.setPred(d.index, w.mask, done)
		}
	})
}
