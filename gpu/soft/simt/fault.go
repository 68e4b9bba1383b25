package simt

import "vgpud/gpu"

// raise records a fault of a lane as the fault of its block; the first one is kept.
func (w *warp) raise(kind gpu.FaultKind, in *inst, lane int) {
	w.budget = 0
	if w.fault != nil {
		return
	}
	d := w.grid.launch.Block
	t := w.index*lanes + uint32(lane)
	line := 0
	if in.x != nil {
		line = int(in.x.line)
	}
	w.fault = &gpu.Fault{
		Kind:   kind,
		Kernel: w.grid.launch.Kernel.Name(),
		Block:  w.block.coord,
		Thread: gpu.Dim3{X: t % d.X, Y: t / d.X % d.Y, Z: t / d.X / d.Y},
		Line:   line,
	}
	w.block.fault = w.fault
}
