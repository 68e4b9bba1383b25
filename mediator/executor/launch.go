package executor

import (
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// launchWaits reports whether a launch waits because enough of the context's work is on the GPU,
// which a suspension can't take back. The work of the guest's other contexts is considered when the
// launch is about to go.
func launchWaits(c *command) bool {
	x := c.ch.x
	if x.o.Page.Mode() != ipc.ModeFree {
		// A launch is announced when it could run.
		return c.ch.busyOnGPU() && !c.ch.letsNextGo()
	}
	if x.admitted < x.o.FetchLimit.Launches && x.admission.draining == nil {
		return false
	}
	l, err := abi.DecodeLaunch(c.entry)
	if err != nil {
		return false
	}
	f, err := x.functions.get(l.Function)
	if err != nil {
		return false
	}
	shape := launchShape(&l)
	return !x.fitsContext(c.ch, x.estimate(f, &shape), c.ch.job != nil)
}

// launchShape returns a launch's grid, blocks and shared memory.
func launchShape(l *abi.Launch) gpu.Launch {
	return gpu.Launch{
		Grid: gpu.Dim3{X: l.Grid[0], Y: l.Grid[1], Z: l.Grid[2]}, Block: gpu.Dim3{X: l.Block[0], Y: l.Block[1], Z: l.Block[2]},
		SharedBytes: uint64(l.SharedBytes),
	}
}

func launch(c *command, p *pending) error {
	x := c.ch.x
	l, err := abi.DecodeLaunch(c.entry)
	if err != nil {
		return err
	}
	f, err := x.functions.get(l.Function)
	if err != nil {
		return err
	}
	x.record.end()
	shape := launchShape(&l)
	if err := x.checkShape(shape.Grid, shape.Block); err != nil {
		return err
	}
	records := uint64(c.h.Aux) * abi.EntrySize
	data, err := c.dataIn(x.params, l.Data, records+uint64(l.ParamBytes), maxParams)
	if err != nil {
		return err
	}
	x.params = data
	x.gl = shape
	x.gl.Function, x.gl.Params = f.gpu, data[records:]
	var asked attributes
	for i := range uint64(c.h.Aux) {
		if err := x.attribute((*abi.Entry)(data[i*abi.EntrySize:]), f, &x.gl, &asked); err != nil {
			return err
		}
	}
	if asked.preempt.Form == 0 && uint64(l.ParamBytes) != f.attrs.ParamBytes {
		return fmt.Errorf("%d bytes of parameters, the kernel has %d: %w", l.ParamBytes, f.attrs.ParamBytes, abi.StatusInvalidValue)
	}
	urgency, ignored := x.launchUrgency(asked.prioritised, asked.priority)
	if j := c.ch.job; j != nil && !j.isFollowedBy(asked.preempt.Form, urgency, x.estimate(f, &x.gl)) {
		return errWaits
	}
	if asked.preempt.Form != 0 || x.o.Page.Mode() != ipc.ModeFree {
		err = c.ch.newJob(p, f, &asked, urgency)
	} else {
		err = c.launchNow(p, f)
	}
	if ignored && err != errWaits {
		x.slot.AddIgnoredPriority()
	}
	return err
}

// launchNow puts the launch in x.gl on the GPU. It needs no turn.
func (c *command) launchNow(p *pending, f *function) error {
	x := c.ch.x
	p.estimate = x.estimate(f, &x.gl)
	if !x.admit(c.ch, p.estimate, false) {
		return errWaits
	}
	x.resume()
	c.lead(p.estimate.work, !p.estimate.long)
	if err := p.onGPU(c.ch.gpu.Launch(&x.gl)); err != nil {
		x.release(p.estimate)
		return err
	}
	p.fn = f
	c.ch.placed()
	return nil
}

// checkShape refuses grids and blocks that no kernel of this GPU can have.
func (x *Executor) checkShape(grid, block gpu.Dim3) error {
	d := &x.props
	switch {
	case grid.X == 0 || grid.Y == 0 || grid.Z == 0 || block.X == 0 || block.Y == 0 || block.Z == 0,
		grid.X > d.MaxGrid.X || grid.Y > d.MaxGrid.Y || grid.Z > d.MaxGrid.Z,
		block.X > d.MaxBlockDim.X || block.Y > d.MaxBlockDim.Y || block.Z > d.MaxBlockDim.Z:
		return fmt.Errorf("grid %v of blocks %v: %w", grid, block, abi.StatusInvalidValue)
	case block.Count() > uint64(d.ThreadsPerBlock):
		return fmt.Errorf("block %v has %d threads, at most %d: %w", block, block.Count(), d.ThreadsPerBlock, abi.StatusLaunchResources)
	}
	return nil
}

// attributes are those of a launch that concern more than the GPU.
type attributes struct {
	preempt     abi.Preempt // Form 0: not preemptible
	cooperative bool
	prioritised bool
	priority    int32 // CUDA's: less is more urgent
}

// attribute applies one launch attribute. Hints that change no result are ignored.
func (x *Executor) attribute(e *abi.Entry, f *function, l *gpu.Launch, asked *attributes) error {
	a, err := abi.DecodeAttribute(e)
	if err != nil {
		return err
	}
	switch a.ID {
	case abi.AttributeIgnore, abi.AttributeAccessPolicy, abi.AttributeSyncPolicy,
		abi.AttributeMemSyncDomain, abi.AttributeMemSyncDomainMap, abi.AttributeSharedCarveout,
		abi.AttributeClusterPolicy, abi.AttributePreferredCluster, abi.AttributeProgrammaticStream:
		return nil
	case abi.AttributeExpectedNanoseconds:
		ns := uint64(a.Uint32(0)) | uint64(a.Uint32(1))<<32
		f.hint = time.Duration(min(ns, uint64(shallowWork)))
		return nil
	case abi.AttributePriority:
		asked.prioritised, asked.priority = true, int32(a.Uint32(0))
		return nil
	case abi.AttributePreempt:
		asked.preempt, err = abi.DecodePreempt(&a)
		return err
	case abi.AttributeCooperative:
		if a.Uint32(0) == 0 {
			return nil
		}
		asked.cooperative = true
		perSM, err := f.gpu.Occupancy(int(l.Block.Count()), l.SharedBytes)
		if err != nil {
			return err
		}
		if l.Grid.Count() > uint64(perSM)*uint64(x.props.SMs) {
			return abi.StatusCooperativeLarge
		}
		return nil
	case abi.AttributeCluster:
		for i := range 3 {
			if a.Uint32(i) != 1 {
				return abi.StatusInvalidCluster
			}
		}
		return nil
	default:
		return fmt.Errorf("launch attribute %d: %w", a.ID, abi.StatusNotSupported)
	}
}
