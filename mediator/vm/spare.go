package vm

import (
	"context"
	"errors"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// A spare executor has opened the guest's GPU and waits for the guest's next context, which so is
// ready sooner by the time that opening takes: 0.1 s on an NVIDIA GPU. It has no context itself,
// hence no memory on the GPU. A guest has one from shortly after one of its contexts has begun, if
// [ipc.GPU.WarmExecutors] asks for it. It has nothing of the guest's, and so outlives resets of the
// device. Of a guest that floats it is on the GPU of the context that has begun last.
type spare struct {
	gpu    int                // an index of executors.pages
	s      *started           // nil until it was started
	cancel context.CancelFunc // of the wait for its end
}

const (
	// spareDelay keeps the start of a spare executor out of the way of the program whose context has
	// just begun: both would wait for the GPU's driver.
	spareDelay = 250 * time.Millisecond
	// spareLife is how long a spare executor waits for a context.
	spareLife = 10 * time.Minute
	// ofAnyGPU is the index of no GPU.
	ofAnyGPU = -1
)

// keepSpare has the guest have a spare executor of a GPU soon, if it has none and should have one.
func (b *executors) keepSpare(gpu int) {
	if !b.gpu(gpu).WarmExecutors {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spare != nil || b.drained[b.gpu(gpu).Name] || b.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	sp := &spare{gpu: gpu, cancel: cancel}
	b.spare = sp
	b.ended.Go(func() {
		defer cancel()
		if err := b.runSpare(ctx, sp); err != nil {
			b.log.Debug("no spare executor", "err", err)
		}
	})
}

// runSpare starts the spare executor and ends it when nobody has taken it for too long.
func (b *executors) runSpare(ctx context.Context, sp *spare) error {
	if clock.Sleep(ctx, b.clock, spareDelay) != nil {
		return nil // it is no longer wanted
	}
	s, err := b.launchSpare(sp.gpu)
	if err != nil {
		b.dropSpare(sp)
		return err
	}
	b.mu.Lock()
	wanted := b.spare == sp
	if wanted {
		sp.s = s
	}
	b.mu.Unlock()
	if !wanted {
		return s.end()
	}
	if clock.Sleep(ctx, b.clock, spareLife) == nil && b.dropSpare(sp) {
		return s.end()
	}
	return nil
}

// launchSpare starts an executor and has it open a GPU.
func (b *executors) launchSpare(gpu int) (*started, error) {
	s, err := b.launch(b.log)
	if err != nil {
		return nil, err
	}
	m, err := ipc.NewMessage(ipc.KindPrepare, ipc.Prepare{GPU: b.gpu(gpu)})
	if err == nil {
		err = s.conn.Send(m)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// dropSpare forgets a spare executor, and reports whether it was the guest's until then.
func (b *executors) dropSpare(sp *spare) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spare != sp {
		return false
	}
	b.spare = nil
	return true
}

// takeSpare returns the guest's spare executor if it is of a GPU, which is the caller's then, or nil
// if there is none. One of another GPU is ended.
func (b *executors) takeSpare(gpu int) *started {
	b.mu.Lock()
	sp := b.spare
	b.spare = nil
	b.mu.Unlock()
	if sp == nil {
		return nil
	}
	sp.cancel()
	if gpu != ofAnyGPU && sp.gpu != gpu {
		if err := sp.s.end(); err != nil {
			b.log.Debug("end the spare executor of another GPU", "err", err)
		}
		return nil
	}
	return sp.s // nil if it is about to be started
}

// lostGPU ends the spare executor if a context has ended with its GPU. The spare executor has opened
// that GPU, too: it would be of no use to the next context, and in the way of the GPU's reset.
func (b *executors) lostGPU(code abi.ErrorCode) {
	if code == abi.ErrorDeviceLost {
		b.endSpare()
	}
}

// endSpare ends the guest's spare executor, if it has one.
func (b *executors) endSpare() {
	if err := b.takeSpare(ofAnyGPU).end(); err != nil {
		b.log.Debug("end the spare executor", "err", err)
	}
}
