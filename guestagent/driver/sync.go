package driver

import (
	"context"

	"vgpud/mediator/vgpu/abi"
)

// Sync waits until all commands enqueued so far have ended. It returns the channel's
// error, not that of a command: wait for its Pending for that.
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
	return ch.await(ctx, goal{past: tail - 1})
}

// Fence enqueues a fence: its Pending is done when all earlier commands have ended.
func (ch *Channel) Fence(ctx context.Context) (*Pending, error) {
	p := new(Pending)
	var e abi.Entry
	abi.Empty{}.Encode(&e)
	return p, ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpFence}, nil)
}

// Nops sends n commands that do nothing, as fast as the rings go, and waits until
// each has completed: a measure of the rings. It allocates nothing.
func (ch *Channel) Nops(ctx context.Context, p *Pending, n int) error {
	for n > 0 {
		// While the host carries out a part of the ring, the rest is filled, in
		// batches: a publication costs both sides a cache line.
		part := (ch.mask + 1) / 4
		ch.submit.Lock()
		for ch.tail-ch.head.Load() > 3*part || !ch.room(1) {
			past := ch.tail - min(3*part, ch.tail-ch.head.Load())
			ch.submit.Unlock()
			if err := ch.await(ctx, goal{past: past}); err != nil {
				return err
			}
			ch.submit.Lock()
		}
		if ch.failed.Load() {
			ch.submit.Unlock()
			return ch.err
		}
		batch := min(uint64(n), uint64(ch.writer.Room()), part)
		if p.Done() {
			p.begin(ch, abi.OpNop, uint64(n), ch.tail+uint64(n)-1)
		}
		for range batch {
			e := ch.writer.Next()
			abi.Header{Op: abi.OpNop, Cookie: ch.tail}.Encode(e)
			abi.Empty{}.Encode(e)
			ch.slots[ch.tail&ch.mask].Store(p)
			ch.tail++
		}
		n -= int(batch)
		kick := ch.writer.Publish()
		ch.submit.Unlock()
		if kick {
			if err := ch.ring(); err != nil {
				return err
			}
		}
	}
	return p.Wait(ctx)
}
