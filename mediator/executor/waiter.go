package executor

import (
	"context"
	"sync"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// waiter is a goroutine that waits for a channel's fences and then wakes the executor, which so can
// sleep on one futex for all of its channels.
type waiter struct {
	want   chan gpu.Fence
	asked  gpu.Fence
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// start starts the goroutine for the fences of c. stop ends it.
func (w *waiter) start(c gpu.Channel, slot *ipc.ContextSlot) {
	ctx, cancel := context.WithCancel(context.Background())
	w.want, w.cancel = make(chan gpu.Fence, 1), cancel
	w.ended.Go(func() {
		for f := range w.want {
			// An error is the end of the context, for which the executor is woken too.
			if err := c.Wait(ctx, f); ctx.Err() != nil && err != nil {
				return
			}
			slot.Wake()
		}
	})
}

// ask has the executor woken once f is reached; 0 is no fence. Fences are asked for in order, each
// of them once.
func (w *waiter) ask(f gpu.Fence) {
	if f == 0 || f <= w.asked {
		return
	}
	select {
	case w.want <- f:
		w.asked = f
	default: // it still waits for an earlier one; when woken by that, the executor asks again
	}
}

// stop ends the goroutine and waits for its end.
func (w *waiter) stop() {
	w.cancel()
	close(w.want)
	w.ended.Wait()
}
