package executor

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// hostMemory is the part of BAR2 that the GPU copies from and to by itself.
type hostMemory struct {
	registering sync.WaitGroup
	release     func() error // nil if nothing is registered
}

// registrable returns the part of BAR2 that may be registered with the GPU: the windows, but never
// the header and the rings. A context's kernels can reach what is registered, and the rings are
// those of all of the guest's programs. If rings may lie among the windows it returns nothing.
func registrable(s *ipc.Setup, shared []byte, log *slog.Logger) []byte {
	if s.Rings == 0 {
		log.Debug("copies of this context are slow", "err", "rings lie anywhere in the guest's shared memory")
		return nil
	}
	return shared[min(s.Header+s.Rings, len(shared)):]
}

// populatePiece is how much memory is given pages at a time, in bytes. The kernel keeps other
// threads from mapping memory meanwhile.
const populatePiece = 1 << 20

// populate gives mem its pages in a goroutine of its own, which stop ends, while the context is
// created. The GPU's driver serves no other call while it registers memory, and that takes 0.2 s for
// 256 MiB without pages on an H100's host, 14 ms with them. A failure costs that time.
func populate(mem []byte, log *slog.Logger) (wait, stop func()) {
	var populating sync.WaitGroup
	var stopped atomic.Bool
	populating.Go(func() {
		for len(mem) > 0 && !stopped.Load() {
			n := min(len(mem), populatePiece)
			if err := unix.Madvise(mem[:n], unix.MADV_POPULATE_WRITE); err != nil {
				log.Debug("the guest's shared memory has no pages yet", "err", err)
				return
			}
			mem = mem[n:]
		}
	})
	return populating.Wait, func() { stopped.Store(true); populating.Wait() }
}

// register registers mem with the GPU, if the GPU supports it, in a goroutine of its own. It starts
// as soon as there is a context and before has returned, though it locks all pages of mem, because a
// copy to pages that are not registered waits in the driver for the kernels before it, and the
// executor with it. Copies before that, or if it fails, go the driver's slower way.
func register(c gpu.Context, mem []byte, before func(), log *slog.Logger) *hostMemory {
	s := &hostMemory{}
	r, ok := c.(gpu.HostRegistrar)
	if !ok || len(mem) == 0 {
		return s
	}
	s.registering.Go(func() {
		before()
		release, err := r.RegisterHost(mem)
		if err != nil {
			log.Warn("copies of this context are slow", "err", err)
			return
		}
		s.release = release
	})
	return s
}

// wait waits until the memory is registered, or known not to be.
func (s *hostMemory) wait() { s.registering.Wait() }

// close closes the context, which ends the copies under way, and then unregisters mem, so that it
// can be unmapped. In the other order, unregistering would wait for the copies and the kernels
// before them.
func (s *hostMemory) close(c gpu.Context) error {
	s.registering.Wait()
	err := c.Close()
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}
