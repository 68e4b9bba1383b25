package driver

import (
	"context"
	"errors"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// Ptr is an address in a context's GPU memory.
type Ptr uint64

// call enqueues a command and waits for it.
func (ch *Channel) call(ctx context.Context, e *abi.Entry, op abi.Opcode, aux uint16, more []byte) ([3]uint64, error) {
	var p Pending
	if err := ch.enqueue(ctx, &p, e, abi.Header{Op: op, Aux: aux}, more); err != nil {
		return [3]uint64{}, err
	}
	if err := p.Wait(ctx); err != nil {
		return [3]uint64{}, err
	}
	return p.value(), nil
}

// Alloc allocates zeroed GPU memory.
func (c *Context) Alloc(ctx context.Context, bytes uint64) (Ptr, error) {
	var e abi.Entry
	abi.Alloc{Size: bytes}.Encode(&e)
	v, err := c.Own().call(ctx, &e, abi.OpMemAlloc, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("allocate %d bytes: %w", bytes, err)
	}
	return Ptr(v[0]), nil
}

// Free frees memory that Alloc returned, once all commands have ended that were
// enqueued on any channel before.
func (c *Context) Free(ctx context.Context, p Ptr) error {
	var e abi.Entry
	abi.Handle{Handle: uint64(p)}.Encode(&e)
	if _, err := c.Own().call(ctx, &e, abi.OpMemFree, 0, nil); err != nil {
		return fmt.Errorf("free %#x: %w", uint64(p), err)
	}
	return nil
}

// MemInfo returns how much GPU memory this guest can still allocate, and how much it
// may have in all.
func (c *Context) MemInfo(ctx context.Context) (free, total uint64, err error) {
	var e abi.Entry
	abi.Empty{}.Encode(&e)
	v, err := c.Own().call(ctx, &e, abi.OpMemInfo, 0, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for free memory: %w", err)
	}
	return v[0], v[1], nil
}

// Copies go through windows of this size, so many at a time: while the GPU copies
// one, the next is filled.
const (
	copyChunk  = 1 << 20
	copyChunks = 4
	// longChunk is for long copies: of a piece that size several processors do a part
	// each, and waking them is little beside that.
	longChunk = 4 << 20
)

// chunk is how long the pieces are of a copy of n bytes: longer where there are many
// of them and the windows are a small part of what there is.
func (d *Device) chunk(n int) int {
	if n >= copyChunks*longChunk && d.staging.size >= 4*copyChunks*longChunk {
		return longChunk
	}
	return copyChunk
}

// CopyIn copies src to GPU memory, after the channel's earlier commands, and returns
// when src can be used again; the GPU may still be copying. Wait for the Pending for
// that.
func (ch *Channel) CopyIn(ctx context.Context, dst Ptr, src []byte) (*Pending, error) {
	p, err := ch.copyIn(ctx, dst, src)
	if err != nil {
		return nil, fmt.Errorf("copy %d bytes to %#x: %w", len(src), uint64(dst), err)
	}
	return p, nil
}

func (ch *Channel) copyIn(ctx context.Context, dst Ptr, src []byte) (*Pending, error) {
	var flight [copyChunks]*Pending
	p, chunk := new(Pending), ch.dev.chunk(len(src))
	for i := 0; len(src) > 0; i++ {
		if p = flight[i%copyChunks]; p == nil {
			p = new(Pending)
			flight[i%copyChunks] = p
		} else if err := p.Wait(ctx); err != nil {
			return nil, err
		}
		w, err := ch.window(ctx, uint64(min(len(src), chunk)))
		if err != nil {
			return nil, err
		}
		n, err := ch.dev.fillWide(w, src)
		if err != nil {
			ch.dev.staging.give(w)
			return nil, err
		}
		var e abi.Entry
		abi.Transfer{Dst: uint64(dst), Src: w.Offset, Size: uint64(n)}.Encode(&e)
		if err := ch.enqueueWindow(ctx, p, &e, abi.OpCopyIn, w); err != nil {
			return nil, err
		}
		dst, src = dst+Ptr(n), src[n:]
	}
	return p, ch.settle(ctx, flight[:], p)
}

// settle waits for all of a copy's pieces but the last, so that an error of an
// earlier one is not lost. They are done, or nearly: commands end in order.
func (ch *Channel) settle(ctx context.Context, flight []*Pending, last *Pending) error {
	for _, p := range flight {
		if p == nil || p == last {
			continue
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// CopyOut copies GPU memory to dst, after the channel's earlier commands, and returns
// when it is there.
func (ch *Channel) CopyOut(ctx context.Context, dst []byte, src Ptr) error {
	if err := ch.copyOut(ctx, dst, src); err != nil {
		return fmt.Errorf("copy %d bytes from %#x: %w", len(dst), uint64(src), err)
	}
	return nil
}

func (ch *Channel) copyOut(ctx context.Context, dst []byte, src Ptr) error {
	type piece struct {
		p   Pending
		w   abi.Window
		dst []byte
	}
	chunk := ch.dev.chunk(len(dst))
	flight := make([]piece, min(copyChunks, (len(dst)+chunk-1)/chunk))
	// Windows stay ours until the bytes are taken out of them. Those whose command
	// may still be carried out are left to the channel.
	defer func() {
		for i := range flight {
			ch.leave(&flight[i].p, flight[i].w)
		}
	}()
	take := func(f *piece) error {
		if f.w.Size == 0 {
			return nil
		}
		if err := f.p.Wait(ctx); err != nil {
			return err
		}
		if err := ch.dev.drainWide(f.dst, f.w); err != nil {
			return err
		}
		ch.dev.staging.give(f.w)
		f.w, f.dst = abi.Window{}, nil
		return nil
	}
	for i := 0; len(dst) > 0; i++ {
		f := &flight[i%len(flight)]
		if err := take(f); err != nil {
			return err
		}
		n := min(len(dst), chunk)
		var err error
		// Who holds windows does not wait for others', who may do the same.
		f.w, err = ch.dev.staging.take(uint64(n), stagingAlign)
		for k := 1; err != nil && k < len(flight); k++ {
			if err = take(&flight[(i+k)%len(flight)]); err != nil {
				return err
			}
			f.w, err = ch.dev.staging.take(uint64(n), stagingAlign)
		}
		if err != nil {
			if f.w, err = ch.window(ctx, uint64(n)); err != nil {
				return err
			}
		}
		f.p.lent = true
		var e abi.Entry
		abi.Transfer{Dst: f.w.Offset, Src: uint64(src), Size: uint64(n)}.Encode(&e)
		if err := ch.enqueue(ctx, &f.p, &e, abi.Header{Op: abi.OpCopyOut}, nil); err != nil {
			return err
		}
		f.dst, dst, src = dst[:n], dst[n:], src+Ptr(n)
	}
	// The oldest piece first.
	var errs error
	for i := range flight {
		errs = errors.Join(errs, take(&flight[i]))
	}
	return errs
}

// Copy copies within the context's GPU memory.
func (ch *Channel) Copy(ctx context.Context, dst, src Ptr, bytes uint64) (*Pending, error) {
	var e abi.Entry
	abi.Transfer{Dst: uint64(dst), Src: uint64(src), Size: bytes}.Encode(&e)
	p := new(Pending)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpCopy}, nil); err != nil {
		return nil, fmt.Errorf("copy %d bytes from %#x to %#x: %w", bytes, uint64(src), uint64(dst), err)
	}
	return p, nil
}

// Set fills count elements of width bytes (1, 2 or 4) with the low bits of value.
func (ch *Channel) Set(ctx context.Context, dst Ptr, value uint32, width int, count uint64) (*Pending, error) {
	return ch.Set2D(ctx, dst, 0, value, width, count, 1)
}

// Set2D fills rows of count elements, pitch bytes apart.
func (ch *Channel) Set2D(ctx context.Context, dst Ptr, pitch uint64, value uint32, width int, count, rows uint64) (*Pending, error) {
	var e abi.Entry
	abi.Set{Dst: uint64(dst), Count: count, Pitch: pitch, Rows: rows, Value: value, Width: uint32(width)}.Encode(&e)
	p := new(Pending)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpSet}, nil); err != nil {
		return nil, fmt.Errorf("set %d×%d elements at %#x: %w", rows, count, uint64(dst), err)
	}
	return p, nil
}

// CopyIn copies src to GPU memory and returns when it is there.
func (c *Context) CopyIn(ctx context.Context, dst Ptr, src []byte) error {
	p, err := c.Own().CopyIn(ctx, dst, src)
	if err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("copy %d bytes to %#x: %w", len(src), uint64(dst), err)
	}
	return nil
}

// CopyOut copies GPU memory to dst.
func (c *Context) CopyOut(ctx context.Context, dst []byte, src Ptr) error {
	return c.Own().CopyOut(ctx, dst, src)
}

// Copy copies within GPU memory and returns when it is done.
func (c *Context) Copy(ctx context.Context, dst, src Ptr, bytes uint64) error {
	p, err := c.Own().Copy(ctx, dst, src, bytes)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Set fills GPU memory and returns when it is done.
func (c *Context) Set(ctx context.Context, dst Ptr, value uint32, width int, count uint64) error {
	p, err := c.Own().Set(ctx, dst, value, width, count)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}
