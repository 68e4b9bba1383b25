package vm

import (
	"context"
	"errors"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

const (
	// readyLimit bounds the time in which an executor creates its context on the GPU. One whose
	// threads have used a processor, or waited for one, for more than a slowPart of it is slow, and
	// gets it again, up to slowLooks times in all: threads with real-time priority leave others a
	// twentieth of a processor, which a busy host divides among many. One that waits for anything else
	// hangs.
	readyLimit = 30 * time.Second
	slowPart   = 4
	slowLooks  = 10
)

// limitStart makes Receive on conn fail after readyLimit, or later if memory has to be copied or the
// executor is slow. The executor is asked first what it waits for. A call of started ends that, and
// reports whether it came too late; it may be called several times.
func (p *process) limitStart(conn *ipc.Conn) (started func() (late bool)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	late := false // before done is closed
	limit := readyLimit + p.returnLimit()
	go func() {
		defer close(done)
		log := p.b.log.With("context", p.ref.Slot)
		var active time.Duration
		for look := 1; ; look++ {
			if clock.Sleep(ctx, p.b.clock, limit) != nil {
				return
			}
			before := active
			active = p.b.active(p.executor.pid())
			if look == slowLooks || active-before <= limit/slowPart {
				break
			}
			log.Info("executor is slow to start", "active", active, "after", time.Duration(look)*limit)
		}
		late = true
		log.Warn("executor was not ready in time", "limit", limit)
		if p.executor != nil && p.executor.quit(ctx, p.b.clock, log) != nil {
			return
		}
		if err := conn.Expire(); err != nil {
			p.b.log.Debug("expire an executor's connection", "err", err)
		}
	}()
	return func() bool {
		cancel()
		<-done
		return late
	}
}

// notReady returns what a failed start means to the guest. m has the reason, and its body, if any,
// is an [ipc.Fault].
func (p *process) notReady(m ipc.Message) (abi.ErrorCode, error) {
	err := errors.New(m.Error)
	if m.Body == nil {
		return abi.ErrorExecutorStart, err
	}
	var f ipc.Fault
	if derr := m.Decode(&f); derr != nil {
		return abi.ErrorInternal, errors.Join(err, derr)
	}
	p.b.lostGPU(abi.ErrorCode(f.Code))
	switch code := abi.ErrorCode(f.Code); code {
	case abi.ErrorDeviceLost, abi.ErrorLimit:
		return code, err
	default:
		return abi.ErrorExecutorStart, err
	}
}
