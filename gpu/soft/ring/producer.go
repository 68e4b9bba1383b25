package ring

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
)

// Producer is the launching side. Put may be called from one goroutine at a time, the other methods
// from any.
type Producer struct {
	mem []byte
	l   *layout
	put uint64
	// Kick wakes the consumer. It is called if the consumer requests it.
	kick func()
}

// NewProducer maps f, which remains the caller's. Close unmaps it.
func NewProducer(f *os.File, kick func()) (*Producer, error) {
	mem, l, err := mapFile(f)
	if err != nil {
		return nil, err
	}
	if l.magic != magic || l.version != version {
		err := fmt.Errorf("channel's ring has magic %#x version %d, want %#x and %d", l.magic, l.version, uint32(magic), version)
		if uerr := unix.Munmap(mem); uerr != nil {
			return nil, uerr
		}
		return nil, err
	}
	return &Producer{mem: mem, l: l, put: l.put.Load(), kick: kick}, nil
}

// Put puts a launch and returns its number, or false if the ring is full. The parameters must fit
// [ParamBytes].
func (p *Producer) Put(e *Entry) (seq uint64, ok bool) {
	if p.put-p.l.completed.Load() >= Entries {
		return 0, false
	}
	slot := &p.l.entries[p.put%Entries]
	slot.kernel = e.Kernel
	slot.grid = [3]uint32{e.Grid.X, e.Grid.Y, e.Grid.Z}
	slot.block = [3]uint32{e.Block.X, e.Block.Y, e.Block.Z}
	slot.shared = e.Shared
	slot.paramBytes = uint32(copy(slot.params[:], e.Params))
	p.put++
	p.l.put.Swap(p.put) // see layout
	if p.l.wantKick.Load() != 0 {
		p.kick()
	}
	return p.put, true
}

// Completed returns the number of the newest launch that has ended.
func (p *Producer) Completed() uint64 { return p.l.completed.Load() }

// Dead reports whether the consumer has closed the channel: nothing more will complete.
func (p *Producer) Dead() bool { return p.l.dead.Load() != 0 }

// Outcome returns the outcome of launch seq, or false if it has not ended or is forgotten.
func (p *Producer) Outcome(seq uint64) (Outcome, bool) {
	if seq == 0 || seq > p.l.completed.Load() {
		return Outcome{}, false
	}
	r := &p.l.outcomes[seq%Entries]
	o := Outcome{Start: r.start.Load(), End: r.end.Load(), Code: Code(r.code.Load())}
	return o, r.seq.Load() == seq
}

// maxSleep limits a sleep, so that a consumer that died unnoticed, and a lost wake-up, only cost
// time.
const maxSleep = 50 * time.Millisecond

// Wait waits until launch seq has ended, for at most about the time of one sleep. The caller then
// checks whether the ring is dead and calls again. Wait first polls for spin, yielding to other
// goroutines; spin should be zero on few cores.
func (p *Producer) Wait(ctx context.Context, seq uint64, spin time.Duration) error {
	if p.l.completed.Load() >= seq {
		return nil
	}
	if spin > 0 {
		for start := time.Now(); ; {
			for range 64 {
				if p.l.completed.Load() >= seq {
					return nil
				}
				pause()
			}
			if time.Since(start) > spin {
				break
			}
			runtime.Gosched()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.l.waiting.Add(1)
	defer p.l.waiting.Add(^uint32(0))
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(woken); p.Wake() })
	defer func() {
		if !stop() {
			<-woken // it uses the mapping, which may be unmapped once Wait returns
		}
	}()
	now := p.l.completed.Load()
	if now >= seq || p.Dead() || ctx.Err() != nil {
		return ctx.Err()
	}
	// All errors (timeout, value changed, signal) mean the same: check again.
	_ = futex.Wait(futexWord(p.l), uint32(now), maxSleep)
	return ctx.Err()
}

// Wake ends the sleep of all waiters, which then check again.
func (p *Producer) Wake() { futex.Wake(futexWord(p.l)) }

// Close unmaps the ring. No method may be running or be called afterwards.
func (p *Producer) Close() error {
	if err := unix.Munmap(p.mem); err != nil {
		return fmt.Errorf("unmap a channel's ring: %w", err)
	}
	return nil
}

//go:noinline
func pause() {}
