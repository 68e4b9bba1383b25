package executor

import (
	"errors"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// A context that floats was granted memory, and may ask for more: a command that finds too little
// waits for the answer. See [Options].Grow.

// growth is a request for more memory.
type growth struct {
	want    uint64 // bytes in all that were asked for; 0: no answer is due
	refused uint64 // the last request, if the answer was less; 0: it was not
	granted uint64 // the last answer; 0: there was none
}

// moduleGrowth is by how much the grant is to grow for a module, of which it is not known what it needs,
// at least, and as a part of what the context has.
const (
	moduleGrowth     = 16 << 20
	moduleGrowthPart = 8
)

// maxGrowth is more bytes than any GPU has.
const maxGrowth = 1 << 50

// grows returns err, with which memory of size bytes was not to be had, or errWaits if the context asks
// for more. Size 0 is not known.
func (x *Executor) grows(size uint64, err error) error {
	g := &x.growth
	if x.o.Grow == nil || size > maxGrowth || !errors.Is(err, gpu.ErrMemoryLimit) {
		return err
	}
	taken := x.slot.MemoryTaken()
	left := uint64(maxGrowth) // of the guest's limit
	if limit := currentMemoryLimit(x.o.Page, x.o.MemoryLimit); limit > 0 {
		left = limit - min(x.o.Page.MemoryTaken(), limit)
	}
	if size == 0 {
		size = min(max(moduleGrowth, taken/moduleGrowthPart), left)
	} else {
		size = roundUp(size, max(x.places.grain, 1))
	}
	if size == 0 || size > left {
		return err // the guest's other contexts have the rest, or the limit was lowered
	}
	want := taken + size
	if want <= g.granted { // which was not enough: the device needs more
		want = g.granted + size
	}
	switch {
	case g.want > 0:
		return errWaits
	case g.refused > 0 && want >= g.refused:
		g.refused = 0 // the next command may ask again
		return err
	}
	g.want, g.refused = want, 0
	x.o.Grow(want)
	return errWaits
}

// Granted is the answer to [Options].Grow.
func (x *Executor) Granted(a ipc.Grant) {
	x.do(func() {
		g := &x.growth
		if a.Want != g.want {
			return
		}
		if x.o.Granted != nil {
			x.o.Granted(a.Bytes)
		}
		g.granted = a.Bytes
		if a.Bytes < g.want {
			g.refused = g.want
		}
		g.want = 0
		x.forgetRefusals()
	})
}
