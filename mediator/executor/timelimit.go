package executor

import (
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// currentTimeLimit returns the GPU time after which the guest's kernels are ended: what the daemon
// has set since, or what the context was set up with. 0 is none.
func currentTimeLimit(page *ipc.ControlPage, setup time.Duration) time.Duration {
	if d, ok := page.KernelTimeLimit(); ok {
		return d
	}
	return setup
}

func (x *Executor) kernelTimeLimit() time.Duration {
	return currentTimeLimit(x.o.Page, x.o.KernelTimeLimit)
}

// updateTimeLimit passes a changed limit on to the device, which enforces it within one run of a
// kernel. A device that can't change it goes on with the old one for the kernels of this context.
func (x *Executor) updateTimeLimit() {
	limit := x.kernelTimeLimit()
	if limit == x.timeLimit || x.poison != nil {
		return
	}
	x.timeLimit = limit
	c, ok := x.o.Context.(gpu.TimeLimited)
	if !ok {
		return
	}
	if err := c.SetKernelTimeLimit(limit); err != nil {
		x.o.Log.Warn("change the kernels' time limit", "limit", limit, "err", err)
	}
}
