package simt

import "vgpud/ptx"

// registerUse describes how an instruction uses a register.
type registerUse uint8

const (
	readsReg  registerUse = iota
	writesReg             // in all its active lanes
	mayWrite              // in some lanes, or unknown; the old value may still be used
	overlaps              // must not share a register with anything that the instruction reads
)

// wants reports whether the use may read the register's old value.
func (u registerUse) wants() bool { return u == readsReg || u == mayWrite }

// noResult holds the opcodes that read all their operands.
var noResult = map[string]bool{
	"st": true, "red": true, "bra": true, "brx": true, "membar": true, "fence": true, "prefetch": true, "prefetchu": true,
	"nanosleep": true, "ret": true, "exit": true, "trap": true, "discard": true, "applypriority": true, "brkpt": true,
	"sust": true, "sured": true, "stmatrix": true,
}

// eachReg calls visit for every register that an instruction names.
func eachReg(in *ptx.Instr, visit func(reg int, use registerUse)) {
	if s := in.Pred.Sym; s != nil && s.Kind == ptx.SymReg {
		visit(s.Index, readsReg)
	}
	write := writesReg
	if in.Guarded() {
		write = mayWrite
	}
	ops := in.Operands
	switch {
	case in.Opcode == "call":
		call, ok := in.Call()
		if !ok {
			break
		}
		for i := range call.Returns {
			eachRegOf(&call.Returns[i], write, visit)
		}
		for i := range call.Args {
			eachRegOf(&call.Args[i], readsReg, visit)
		}
		eachRegOf(&call.Target, readsReg, visit)
		return
	case noResult[in.Opcode] || len(ops) == 0:
	case in.Opcode == "bar" || in.Opcode == "barrier" || in.Opcode == "mbarrier" || in.Opcode == "cp":
		write = mayWrite
		eachRegOf(&ops[0], write, visit)
		ops = ops[1:]
	default:
		several := ops[0].Kind == ptx.KindVector || ops[0].Kind == ptx.KindPair
		if several {
			// The results must not share a register with the sources, since some are written before
			// others are read.
			eachRegOf(&ops[0], write, visit)
			for i := range ops[1:] {
				eachRegOf(&ops[i+1], readsReg, visit)
			}
			eachRegOf(&ops[0], overlaps, visit)
			return
		}
		eachRegOf(&ops[0], write, visit)
		ops = ops[1:]
	}
	for i := range ops {
		eachRegOf(&ops[i], readsReg, visit)
	}
}

func eachRegOf(o *ptx.Operand, use registerUse, visit func(reg int, use registerUse)) {
	if s := o.Sym; s != nil && s.Kind == ptx.SymReg && (o.Kind == ptx.KindReg || o.Kind == ptx.KindAddr) {
		if o.Kind == ptx.KindAddr {
			use = readsReg
		}
		if s.Vector > 0 && use == writesReg {
			use = mayWrite
		}
		visit(s.Index, use)
	}
	for i := range o.Elems {
		eachRegOf(&o.Elems[i], use, visit)
	}
}
