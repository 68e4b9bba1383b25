package executor

import (
	"context"
	"sync"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// exitLimit is how long the end of a process may take. By then a selfEnabler has enabled the
// context if the daemon is gone, so Run may have returned.
const exitLimit = 2 * ipc.SuspensionLimit

// watchdog ends a process that does not end by itself. The goroutine of Run may wait in the driver
// for a kernel that only the end of the process stops, or for a GPU that the context is kept off;
// and if vm is gone too, nothing else ends the process.
type watchdog struct {
	clock clock.Clock
	// exit ends the process.
	exit func(code int)
}

// guard starts the watchdog. It ends the process if done or hung is closed and release is not
// called in time. If hung is closed it calls tell first, and ends the process with status 0.
// release stops the watchdog, and waits until it has stopped.
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

// hungOf returns a channel that is closed when a kernel of the context's hangs, or nil if none can.
func hungOf(c gpu.Context) <-chan struct{} {
	if h, ok := c.(gpu.Hanging); ok {
		return h.Hung()
	}
	return nil
}
