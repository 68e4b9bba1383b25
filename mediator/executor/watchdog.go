package executor

import (
	"context"
	"sync"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// endLimit is how long a process that is to end may take to. By then what a keeper
// undoes where the daemon is gone was undone, and Run may have come back.
const exitLimit = 2 * ipc.SuspensionLimit

// deadMan is a dead man's handle. The goroutine of Run can wait in the driver for the
// very kernel that only the end of the process stops, or for a GPU that nobody gives
// back to it; and where vm is gone too, nobody else ends the process.
type watchdog struct {
	clock clock.Clock
	// exit ends the process.
	exit func(code int)
}

// guard ends the process when it is to end, by done or hung, and release is not called
// in time. Of what hangs it calls tell first, and ends as a process that has carried out
// its last duty. release waits until nothing of that can happen any more.
func (d watchdog) guard(done, hung <-chan struct{}, tell func()) (release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var guarding sync.WaitGroup
	guarding.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-done:
		case <-hung:
		}
		if clock.Sleep(ctx, d.clock, exitLimit) != nil {
			return
		}
		select {
		case <-hung:
			tell()
			d.exit(0)
		default:
			d.exit(1)
		}
	})
	return func() {
		cancel()
		guarding.Wait()
	}
}

// hungOf is closed when a kernel of the context's hangs; nil: none can.
func hungOf(c gpu.Context) <-chan struct{} {
	if h, ok := c.(gpu.Hanging); ok {
		return h.Hung()
	}
	return nil
}
