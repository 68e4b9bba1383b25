package executor

import (
	"errors"
	"log/slog"
	"sync"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// hostMemory is what of BAR2 the GPU copies from and to by itself.
type hostMemory struct {
	registering sync.WaitGroup
	release     func() error // nil: nothing is registered
}

// forGPU is what of BAR2 the GPU may be given to copy from and to: the windows. The
// header and the rings never: what is registered a context's kernels can reach, and the
// rings are those of all of the guest's programs. Where rings may lie among windows
// that is nothing.
func registrable(s *ipc.Setup, shared []byte, log *slog.Logger) []byte {
	if s.Rings == 0 {
		log.Debug("copies of this context are slow", "err", "rings lie anywhere in the guest's shared memory")
		return nil
	}
	return shared[min(s.Header+s.Rings, len(shared)):]
}

// register registers mem with the GPU, if that is of any use there, beside what the
// executor does. It is done as soon as there is a context, though it locks all pages
// of mem, because a copy to pages that are not registered waits for the kernels
// before it in the driver, and the executor with it; and beside the executor because
// 256 MiB take 85 ms, which the guest spends loading its modules. What is copied
// before, or where it fails, goes the driver's slower way.
func register(c gpu.Context, mem []byte, log *slog.Logger) *hostMemory {
	s := &hostMemory{}
	r, ok := c.(gpu.HostRegistrar)
	if !ok || len(mem) == 0 {
		return s
	}
	s.registering.Go(func() {
		release, err := r.RegisterHost(mem)
		if err != nil {
			log.Warn("copies of this context are slow", "err", err)
			return
		}
		s.release = release
	})
	return s
}

// close closes the context, which ends the copies that are under way, and then lets
// mem go, so that it can be unmapped: the other way round, letting go would wait for
// them, and for the kernels before them.
func (s *hostMemory) close(c gpu.Context) error {
	s.registering.Wait()
	err := c.Close()
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}
