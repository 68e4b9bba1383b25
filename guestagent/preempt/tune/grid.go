package tune

import (
	"math/bits"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// MaxBitmapUnits bounds the units of an early exit: what the host's record of skipped units, a
// bitmap, has room for.
const MaxBitmapUnits = 8_388_608

// Shape is what distinguishes launches of a kernel for the tuner.
type Shape struct {
	Tasks       uint64 // blocks of the grid
	Threads     uint32 // threads of a block
	SharedBytes uint32 // dynamic shared memory of a block
}

// Class is a set of shapes whose launches are assumed to cost the same per task: grids within a
// factor of two, with the same blocks.
type Class struct {
	Log2Tasks   int    `json:"log2_tasks"` // number of bits of the grid's blocks
	Threads     uint32 `json:"threads"`
	SharedBytes uint32 `json:"shared_bytes"`
}

// Class returns the class that s belongs to.
func (s Shape) Class() Class {
	return Class{bits.Len64(s.Tasks), s.Threads, s.SharedBytes}
}

// units returns how many units an early exit's grid has: blocks of group tasks.
func units(tasks uint64, group uint32) uint64 {
	return (tasks + uint64(group) - 1) / uint64(group)
}

// Offered reports whether a grid of that many tasks may be launched as p: the kernel has these
// forms, on a GPU that holds slots of the original's blocks at once. The original always may.
//
// A grid that fits the GPU at once uses the original: its blocks have all started before they can
// be asked to leave, and they may rely on running side by side, which blocks of a form that needs
// more room might not.
func Offered(p abi.Preempt, forms abi.PreemptForm, tasks uint64, slots int) bool {
	if p.Form == 0 {
		return p == abi.Preempt{}
	}
	return slots > 0 && tasks > uint64(slots) && Possible(p, forms, tasks)
}

// Possible reports whether a grid of that many tasks can be launched in p's form at all, whether it
// fits the GPU or not. An early exit can't exceed the bounds of what is recorded of skipped units.
func Possible(p abi.Preempt, forms abi.PreemptForm, tasks uint64) bool {
	if p.Form&forms == 0 || tasks == 0 || tasks > abi.MaxPreemptTasks ||
		p.Group < 1 || p.Group > abi.MaxPreemptGroup || p.Every < 1 || p.Every > abi.MaxPreemptEvery {
		return false
	}
	switch p.Form {
	case abi.PreemptSingle:
		return p.Group == 1 && p.Every == 1 && tasks <= MaxBitmapUnits
	case abi.PreemptCoarse:
		return p.Every == 1 && units(tasks, p.Group) <= MaxBitmapUnits
	case abi.PreemptPersistent:
		return true
	}
	return false
}

// leaves returns an upper estimate of the time a kernel takes to leave the GPU if a task takes the
// time task in its slot. The original leaves when it ends.
func (p *Parameters) leaves(c abi.Preempt, task time.Duration, tasks uint64, slots int) time.Duration {
	drain := func(group uint32) time.Duration { return time.Duration(units(tasks, group)) * p.Drain }
	switch c.Form {
	case abi.PreemptSingle:
		return p.Reaction + task + drain(1)
	case abi.PreemptCoarse:
		return p.Reaction + time.Duration(c.Group)*task + drain(c.Group)
	case abi.PreemptPersistent:
		return p.Reaction + time.Duration(c.Group)*time.Duration(c.Every)*task
	}
	waves := (tasks + uint64(slots) - 1) / uint64(slots)
	return time.Duration(waves) * task
}
