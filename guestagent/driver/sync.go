package driver

import (
	"context"

	"vgpud/mediator/vgpu/abi"
)

// Sync waits until all commands enqueued so far have ended. It returns the channel's error; an
// error of a single command is that of its Pending.
func (ch *Channel) Sync(ctx context.Context) error {
	ch.submit.Lock()
	tail := ch.tail
	ch.submit.Unlock()
	if tail == ch.head.Load() {
		if ch.failed.Load() {
			return ch.err
		}
		return nil
	}
	return ch.await(ctx, target{past: tail - 1})
}

// Fence enqueues a fence. Its Pending is done when all earlier commands have ended.
func (ch *Channel) Fence(ctx context.Context) (*Pending, error) {
	return ch.send(ctx, abi.OpFence, abi.Empty{})
}

// Nops sends n commands that do nothing, as fast as the rings allow, and waits until all have
// completed. It measures the rings and allocates nothing.
func (ch *Channel) Nops(ctx context.Context, p *Pending, n int) error {
	for n > 0 {
		// While the host carries out a part of the ring, the rest is filled, in batches: each
		// publication costs both sides a cache line.
		part := (ch.mask + 1) / 4
		var sent int
		var kick bool
		ch.submit.Lock()
		past := ch.tail - min(3*part, ch.tail-ch.head.Load())
		err := ch.dev.touch(func() { sent, kick = ch.putNops(p, n, part) })
		ch.submit.Unlock()
		switch {
		case err != nil:
			ch.fail(err)
			return err
		case sent == 0 && ch.failed.Load():
			return ch.err
		case sent == 0:
			err = ch.await(ctx, target{past: past})
		case kick:
			err = ch.ring()
		}
		if err != nil {
			return err
		}
		n -= sent
	}
	return p.Wait(ctx)
}

// putNops writes up to part of n commands that do nothing to the ring, unless more than three parts
// are under way, and returns how many. ch.submit is held.
func (ch *Channel) putNops(p *Pending, n int, part uint64) (sent int, kick bool) {
	if ch.failed.Load() || ch.tail-ch.head.Load() > 3*part || !ch.room(1) {
		return 0, false
	}
	batch := min(uint64(n), uint64(ch.writer.Room()), part)
	if p.Done() {
		p.begin(ch, abi.OpNop, uint64(n), ch.tail+uint64(n)-1)
	}
	for range batch {
		e := ch.writer.Next()
		abi.Header{Op: abi.OpNop, Cookie: ch.tail}.Encode(e)
		abi.Empty{}.Encode(e)
		ch.pending[ch.tail&ch.mask].Store(p)
		ch.tail++
	}
	return int(batch), ch.writer.Publish()
}
