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

// mbarrierOp compiles the mbarrier instructions for one block.
func mbarrierOp(c *compiler, in *ptx.Instr, m *mods) error {
	op := m.any("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "expect_tx", "complete_tx", "pending_count")
	tx, parity := false, m.has("parity")
	if op == "arrive" || op == "arrive_drop" {
		tx = m.has("expect_tx")
	}
	m.skip("noComplete", "relaxed", "acquire", "release", "cta", "cluster")
	space := m.space()
	if t := m.typ(); t != ptx.B64 && !(t == ptx.NoType && (op == "expect_tx" || op == "complete_tx")) || op == "" {
		return c.unsupported("this form of mbarrier")
	}
	ops := in.Operands
	if op == "pending_count" {
		return c.simple(in, lift1(func(a uint64) uint32 { return uint32(readMbarrier(a).pending) }), c.costs().Simple, ptx.B32, ptx.B64)
	}
	// arrive (optionally), test_wait and try_wait have a result.
	var d operand
	var err error
	switch op {
	case "test_wait", "try_wait":
		if len(ops) < 3 {
			return c.invalid("%d operands", len(ops))
		}
		d, err = c.dstPred(&ops[0])
		ops = ops[1:]
	case "arrive", "arrive_drop":
		if len(ops) > 1 && ops[0].Kind != ptx.KindAddr {
			if d, err = c.anyDst(&ops[0]); err == nil && d.class != noReg && d.class != reg64 {
				err = c.invalid("a state of less than 64 bits")
			}
			ops = ops[1:]
		}
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
	count := c.constant(reg32, 1)
	state := operand{}
	if len(ops) > 1 {
		t := ptx.B32
		if (op == "test_wait" || op == "try_wait") && !parity {
			t = ptx.B64
		}
		r, err := c.src(&ops[1], t)
		if err != nil {
			return err
		}
		if t == ptx.B64 {
			state = r
		} else {
			count = r
		}
	}
	c.memory(p, d, 8, true, func(w *warp, in *inst, data []byte) {
		var done uint32
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := data[w.off[i]:]
			old := binary.LittleEndian.Uint64(p)
			n := uint64(w.r32[count.index][i])
			b := readMbarrier(old)
			switch op {
			case "init":
				b = mbarrier{pending: n, expected: n}
			case "inval":
				b = mbarrier{}
			case "expect_tx":
				b.tx += int64(n)
			case "complete_tx":
				b.tx -= int64(n)
				b = b.settle()
			case "arrive", "arrive_drop":
				if tx {
					b.tx += int64(n)
					n = 1
				}
				b.pending -= n
				if op == "arrive_drop" {
					b.expected -= n
				}
				b = b.settle()
			case "test_wait", "try_wait":
				phase := n & 1 << 63
				if state.class != noReg {
					phase = w.r64[state.index][i] & mbarPhase
				}
				done |= bit(phase != b.phase) << i
				continue
			}
			binary.LittleEndian.PutUint64(p, b.bits())
			if d.class == reg64 {
				w.r64[d.index][i] = old
			}
		}
		if d.class == predReg {
			w.setPred(d.index, w.mask, done)
		}
	})
	return nil
}
