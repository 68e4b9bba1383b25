package driver

import (
	"context"
	"errors"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// Ptr is an address in a context's GPU memory.
type Ptr uint64

// Alloc allocates zeroed GPU memory.
func (c *Context) Alloc(ctx context.Context, bytes uint64) (Ptr, error) {
	v, err := c.Own().call(ctx, abi.OpMemAlloc, abi.Alloc{Size: bytes})
	if err != nil {
		return 0, fmt.Errorf("allocate %d bytes: %w", bytes, err)
	}
	return Ptr(v[0]), nil
}

// AddressRange is the addresses that [Context.AllocAt] takes.
type AddressRange struct {
	Base  Ptr
	Bytes uint64
	// Grain is what addresses are multiples of. Memory is taken in pieces of it.
	Grain uint64
}

// AddressRange returns the addresses that the context's memory can be allocated at. A program that
// reserves them for nothing else in its own address space has GPU addresses that equal none of the
// program's own.
func (c *Context) AddressRange(ctx context.Context) (r AddressRange, err error) {
	if err := c.dev.offers(abi.FeatureChosenAddresses); err != nil {
		return r, err
	}
	var v [3]uint64
	for i, a := range []uint32{abi.DeviceAddressBase, abi.DeviceAddressBytes, abi.DeviceAddressGrain} {
		if v[i], err = c.DeviceAttribute(ctx, a); err != nil {
			return r, err
		}
	}
	if v[0] == 0 || v[2] == 0 {
		return r, fmt.Errorf("the GPU's addresses can't be chosen: %w", abi.StatusNotSupported)
	}
	return AddressRange{Ptr(v[0]), v[1], v[2]}, nil
}

// AllocAt allocates zeroed GPU memory at an address of the context's [AddressRange]. The error is
// [abi.StatusInvalidAddress] if something is there already. Free frees it.
func (c *Context) AllocAt(ctx context.Context, p Ptr, bytes uint64) error {
	if err := c.dev.offers(abi.FeatureChosenAddresses); err != nil {
		return err
	}
	if p == 0 {
		return fmt.Errorf("allocate %d bytes at address 0: %w", bytes, abi.StatusInvalidAddress)
	}
	if _, err := c.Own().call(ctx, abi.OpMemAlloc, abi.Alloc{Size: bytes, Address: uint64(p)}); err != nil {
		return fmt.Errorf("allocate %d bytes at %#x: %w", bytes, uint64(p), err)
	}
	return nil
}

// Free frees memory of Alloc or AllocAt, after all commands that any channel enqueued before.
func (c *Context) Free(ctx context.Context, p Ptr) error {
	if _, err := c.Own().call(ctx, abi.OpMemFree, abi.Handle{Handle: uint64(p)}); err != nil {
		return fmt.Errorf("free %#x: %w", uint64(p), err)
	}
	return nil
}

// A copy goes through windows of copyChunk bytes, up to copyChunks at a time: while the GPU copies
// one, the processor fills the next.
const (
	copyChunk  = 1 << 20
	copyChunks = 4
	// longChunk is the window size of long copies. Several processors copy a part of such a window
	// each; waking them costs little in comparison.
	longChunk = 4 << 20
)

// chunk returns the window size for a copy of n bytes: longChunk if the copy has many of them and
// they are a small part of shared memory.
func (d *Device) chunk(n int) int {
	if n >= copyChunks*longChunk && d.staging.size >= 4*copyChunks*longChunk {
		return longChunk
	}
	return copyChunk
}

// CopyIn copies src to GPU memory, after the channel's earlier commands. It returns when src can be
// used again. The GPU may still be copying until the Pending is done.
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
		n := min(len(src), chunk)
		w, err := ch.window(ctx, uint64(n))
		if err != nil {
			return nil, err
		}
		if err := ch.dev.copyShared(ch.dev.bytes(w), src[:n]); err != nil {
			ch.dev.staging.release(w)
			return nil, err
		}
		var e abi.Entry
		abi.Transfer{Dst: uint64(dst), Src: w.Offset, Size: uint64(n)}.Encode(&e)
		if err := ch.enqueueWindow(ctx, p, &e, abi.Header{Op: abi.OpCopyIn}, w); err != nil {
			return nil, err
		}
		dst, src = dst+Ptr(n), src[n:]
	}
	// An error of an earlier piece must not be lost. Commands end in order, so the earlier pieces
	// are done, or nearly.
	for _, earlier := range flight {
		if earlier == nil || earlier == p {
			continue
		}
		if err := earlier.Wait(ctx); err != nil {
			return p, err
		}
	}
	return p, nil
}

// CopyOut copies GPU memory to dst, after the channel's earlier commands, and returns when the copy
// is complete.
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
	// A window stays ours until its bytes have been copied out. One whose command the host may
	// still carry out goes to the channel.
	defer func() {
		for i := range flight {
			ch.returnWindow(&flight[i].p, flight[i].w)
		}
	}()
	finish := func(f *piece) error {
		if f.w.Size == 0 {
			return nil
		}
		if err := f.p.Wait(ctx); err != nil {
			return err
		}
		if err := ch.dev.copyShared(f.dst, ch.dev.bytes(f.w)); err != nil {
			return err
		}
		ch.dev.staging.release(f.w)
		f.w, f.dst = abi.Window{}, nil
		return nil
	}
	for i := 0; len(dst) > 0; i++ {
		f := &flight[i%len(flight)]
		if err := finish(f); err != nil {
			return err
		}
		n := min(len(dst), chunk)
		var err error
		// A copy that holds windows must not wait for another's windows: the other may wait for
		// ours.
		f.w, err = ch.dev.staging.alloc(uint64(n), stagingAlign)
		for k := 1; err != nil && k < len(flight); k++ {
			if err = finish(&flight[(i+k)%len(flight)]); err != nil {
				return err
			}
			f.w, err = ch.dev.staging.alloc(uint64(n), stagingAlign)
		}
		if err != nil {
			if f.w, err = ch.window(ctx, uint64(n)); err != nil {
				return err
			}
		}
		f.p.windowInUse = true
		var e abi.Entry
		abi.Transfer{Dst: f.w.Offset, Src: uint64(src), Size: uint64(n)}.Encode(&e)
		if err := ch.enqueue(ctx, &f.p, &e, abi.Header{Op: abi.OpCopyOut}, nil); err != nil {
			return err
		}
		f.dst, dst, src = dst[:n], dst[n:], src+Ptr(n)
	}
	var errs error
	for i := range flight {
		errs = errors.Join(errs, finish(&flight[i]))
	}
	return errs
}

// Copy copies within the context's GPU memory.
func (ch *Channel) Copy(ctx context.Context, dst, src Ptr, bytes uint64) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpCopy, abi.Transfer{Dst: uint64(dst), Src: uint64(src), Size: bytes})
	if err != nil {
		return nil, fmt.Errorf("copy %d bytes from %#x to %#x: %w", bytes, uint64(src), uint64(dst), err)
	}
	return p, nil
}

// Box is a pitched copy of up to three dimensions within GPU memory: DepthSlices slices of
// HeightRows rows of WidthBytes bytes.
type Box struct {
	Dst, Src                            Ptr
	DstPitch, SrcPitch                  uint32 // bytes from row to row
	DstSliceRows, SrcSliceRows          uint32 // rows from slice to slice
	WidthBytes, HeightRows, DepthSlices uint32
}

// CopyBox copies a box within the context's GPU memory.
func (ch *Channel) CopyBox(ctx context.Context, b Box) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpCopy3D, abi.Copy3D{
		Dst: uint64(b.Dst), Src: uint64(b.Src), DstPitch: b.DstPitch, SrcPitch: b.SrcPitch,
		DstRows: b.DstSliceRows, SrcRows: b.SrcSliceRows,
		Width: b.WidthBytes, Height: b.HeightRows, Depth: b.DepthSlices,
	})
	if err != nil {
		return nil, fmt.Errorf("copy a box to %#x: %w", uint64(b.Dst), err)
	}
	return p, nil
}

// Set fills count elements of width bytes (1, 2 or 4) with the low bits of value.
func (ch *Channel) Set(ctx context.Context, dst Ptr, value uint32, width int, count uint64) (*Pending, error) {
	return ch.Set2D(ctx, dst, 0, value, width, count, 1)
}

// Set2D fills rows of count elements, pitch bytes apart.
func (ch *Channel) Set2D(ctx context.Context, dst Ptr, pitch uint64, value uint32, width int, count, rows uint64) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpSet, abi.Set{Dst: uint64(dst), Count: count, Pitch: pitch, Rows: rows, Value: value, Width: uint32(width)})
	if err != nil {
		return nil, fmt.Errorf("set %d×%d elements at %#x: %w", rows, count, uint64(dst), err)
	}
	return p, nil
}

// CopyIn copies src to GPU memory and returns when the copy is complete.
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
