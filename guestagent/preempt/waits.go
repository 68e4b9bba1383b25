package preempt

import (
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// mayWait reports whether an instruction reads memory that other blocks may be writing meanwhile, on purpose: volatile,
// relaxed, acquire or atomic, from global memory or what may be global.
func mayWait(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld":
		// .cv asks for the memory's own content each time, as volatile does; .cg passes by the one cache that is not
		// coherent, which is what barriers made by hand use it for.
		if !in.Has("volatile") && !in.Has("relaxed") && !in.Has("acquire") && !in.Has("mmio") && !in.Has("cv") && !in.Has("cg") {
			return false
		}
	case "atom", "multimem":
	default:
		return false
	}
	for _, m := range in.Modifiers {
		switch {
		case m == "local" || m == "const" || strings.HasPrefix(m, "param") || strings.HasPrefix(m, "shared"):
			return false
		}
	}
	return true
}

// waits finds out whether the kernel's blocks may wait for other blocks.
func (w *studying) waits(e *entryStudy) {
	for _, f := range e.reach {
		if !f.readsDeep {
			continue
		}
		for _, i := range f.reads {
			e.waits = e.waits || f.graph.Blocks[f.graph.BlockOf(i)].Loop != flow.None || !f.graph.Reducible
		}
	}
}
