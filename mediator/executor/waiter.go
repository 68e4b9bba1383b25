package executor

import (
	"context"
	"sync"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// waiter sleeps for a channel: a goroutine that waits for a fence and then
// rings the context's bell, so that the executor can sleep on one word.
type waiter struct {
	want   chan gpu.Fence
	asked  gpu.Fence
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// start begins to wait for fences of c. stop ends it.
func (w *waiter) start(c gpu.Channel, slot *ipc.ContextSlot) {
	ctx, cancel := context.WithCancel(context.Background())
	w.want, w.cancel = make(chan gpu.Fence, 1), cancel
	w.ended.Go(func() {
		for f := range w.want {
			// An error is the end of the context, which the bell announces too.
			if err := c.Wait(ctx, f); ctx.Err() != nil && err != nil {
				return
			}
			slot.Wake()
		}
	})
}

// ask has the bell rung once f is reached. Fences are asked for in order, and
// one that was asked for is not asked for again.
func (w *waiter) ask(f gpu.Fence) {
	if f == 0 || f <= w.asked {
		return
	}
	select {
	case w.want <- f:
		w.asked = f
	default: // it still waits for an earlier one, whose ring will have us ask again
	}
}

// stop ends the goroutine and waits for that.
func (w *waiter) stop() {
	w.cancel()
	close(w.want)
	w.ended.Wait()
}
