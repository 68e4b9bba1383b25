package nvidia

import (
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// wordSize is the size of the copies that tell running kernels to leave.
const wordSize = 4

// CopyIn copies from the program's memory to the GPU's. A short copy, or one from registered
// memory, is queued at once. A copy of over 64 KiB from other memory waits for the commands before
// it, as the driver has no page-locked memory to stage it in.
func (ch *Channel) CopyIn(dst gpu.Ptr, src []byte) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	zeroed, err := ch.c.table.find(dst, uint64(len(src)))
	if err != nil {
		return 0, fmt.Errorf("copy in: %w", err)
	}
	begin, end := ch.begin, ch.endCopy
	if len(src) <= wordSize {
		begin, end = ch.beginUntimed, ch.endWord // nobody asks for its outcome, and it is urgent
	}
	i, err := begin(zeroed)
	queued := false
	if err == nil && len(src) > 0 {
		if queued = ch.c.host.contains(src); !queued && len(src) <= cellBytes {
			cell := ch.cell(i, len(src))
			copy(cell, src)
			src, queued = cell, true
		}
		err = ch.c.drv.MemcpyHtoDAsync(cuda.DevicePtr(dst), src, ch.stream)
	}
	if err != nil || !queued || len(src) <= wordSize || !ch.timed(i) {
		return end("copy in", i, err)
	}
	then := ch.c.d.o.Clock.Now()
	f, err := end("copy in", i, nil)
	if err == nil {
		ch.called(i, then)
	}
	return f, err
}

// CopyOut copies from the GPU's memory to the program's. A copy of up to 1 MiB, or to registered
// memory, is queued at once. A longer copy, or one while another uses the bounce buffer, waits for
// the commands before it.
func (ch *Channel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	zeroed, err := ch.c.table.find(src, uint64(len(dst)))
	if err != nil {
		return 0, fmt.Errorf("copy out: %w", err)
	}
	i, err := ch.begin(zeroed)
	queued := false
	if err == nil && len(dst) > 0 {
		to := dst
		if queued = ch.c.host.contains(dst); !queued {
			if mem := ch.bounceFor(i, len(dst)); mem != nil {
				to, queued = mem, true
				ch.mu.Lock()
				ch.slots[i].dst, ch.slots[i].src = dst, mem
				ch.mu.Unlock()
			}
		}
		err = ch.c.drv.MemcpyDtoHAsync(to, cuda.DevicePtr(src), ch.stream)
	}
	if err != nil || !queued || !ch.timed(i) {
		return ch.endCopy("copy out", i, err)
	}
	then := ch.c.d.o.Clock.Now()
	f, err := ch.endCopy("copy out", i, nil)
	if err == nil {
		ch.called(i, then)
	}
	return f, err
}

// Copy copies within the GPU's memory.
func (ch *Channel) Copy(dst, src gpu.Ptr, n uint64) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	to, err := ch.c.table.find(dst, n)
	if err != nil {
		return 0, fmt.Errorf("copy: %w", err)
	}
	from, err := ch.c.table.find(src, n)
	if err != nil {
		return 0, fmt.Errorf("copy: %w", err)
	}
	i, err := ch.begin(max(to, from))
	if err == nil && n > 0 {
		err = ch.c.drv.MemcpyDtoDAsync(cuda.DevicePtr(dst), cuda.DevicePtr(src), n, ch.stream)
	}
	return ch.endCopy("copy", i, err)
}

// Copy3D copies a box.
func (ch *Channel) Copy3D(b *gpu.Copy3D) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("copy a box: %w", err)
	}
	if b.Bytes() == 0 {
		i, err := ch.begin(0)
		return ch.endCopy("copy a box", i, err)
	}
	to, err := ch.side(b, &b.Dst)
	if err != nil {
		return 0, fmt.Errorf("copy a box to: %w", err)
	}
	from, err := ch.side(b, &b.Src)
	if err != nil {
		return 0, fmt.Errorf("copy a box from: %w", err)
	}
	i, err := ch.begin(max(to, from))
	if err == nil {
		box := describe(b)
		err = ch.c.drv.Memcpy3DAsync(&box, ch.stream)
	}
	return ch.endCopy("copy a box", i, err)
}

// side checks that a side of the box lies in one allocation or in the program's memory.
func (ch *Channel) side(b *gpu.Copy3D, s *gpu.Side) (zeroed uint64, err error) {
	n := b.Extent(s)
	if s.Host == nil {
		return ch.c.table.find(s.Ptr, n)
	}
	if n > uint64(len(s.Host)) {
		return 0, fmt.Errorf("%d bytes of %d: %w", n, len(s.Host), gpu.ErrInvalidCopy)
	}
	return 0, nil
}

// describe returns the box in the driver's form. The driver wants pitches and heights that hold a
// row and a slice even where there is only one.
func describe(b *gpu.Copy3D) cuda.Memcpy3D {
	m := cuda.Memcpy3D{WidthInBytes: uintptr(b.Width), Height: uintptr(b.Height), Depth: uintptr(b.Depth)}
	m.DstPitch, m.DstHeight = steps(b, &b.Dst)
	m.SrcPitch, m.SrcHeight = steps(b, &b.Src)
	if b.Dst.Host != nil {
		m.SetDstHost(b.Dst.Host)
	} else {
		m.DstMemoryType, m.DstDevice = cuda.MemoryDevice, cuda.DevicePtr(b.Dst.Ptr)
	}
	if b.Src.Host != nil {
		m.SetSrcHost(b.Src.Host)
	} else {
		m.SrcMemoryType, m.SrcDevice = cuda.MemoryDevice, cuda.DevicePtr(b.Src.Ptr)
	}
	return m
}

func steps(b *gpu.Copy3D, s *gpu.Side) (pitch, height uintptr) {
	pitch, height = uintptr(s.Pitch), uintptr(s.Rows)
	if b.Height == 1 && b.Depth == 1 {
		pitch = uintptr(b.Width)
	}
	if b.Depth == 1 {
		height = uintptr(b.Height)
	}
	return pitch, height
}

// Set fills n elements.
func (ch *Channel) Set(dst gpu.Ptr, value uint32, width int, n uint64) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	if err := checkElements(dst, 0, width, n, 1); err != nil {
		return 0, err
	}
	zeroed, err := ch.c.table.find(dst, n*uint64(width))
	if err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	i, err := ch.begin(zeroed)
	if err == nil && n > 0 {
		err = ch.c.drv.MemsetAsync(cuda.DevicePtr(dst), value, width, n, ch.stream)
	}
	return ch.end("set", i, err)
}

// Set2D fills rows of n elements.
func (ch *Channel) Set2D(dst gpu.Ptr, pitch uint64, value uint32, width int, n, rows uint64) (gpu.Fence, error) {
	if err := ch.usable(); err != nil {
		return 0, err
	}
	if err := checkElements(dst, pitch, width, n, rows); err != nil {
		return 0, err
	}
	b := gpu.Copy3D{Width: n * uint64(width), Height: rows, Depth: 1}
	b.Dst = gpu.Side{Ptr: dst, Pitch: pitch, Rows: rows}
	b.Src = b.Dst
	if err := b.Check(); err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	var zeroed uint64
	if b.Bytes() > 0 {
		var err error
		if zeroed, err = ch.c.table.find(dst, b.Extent(&b.Dst)); err != nil {
			return 0, fmt.Errorf("set: %w", err)
		}
	}
	i, err := ch.begin(zeroed)
	switch {
	case err != nil || b.Bytes() == 0:
	case rows == 1:
		err = ch.c.drv.MemsetAsync(cuda.DevicePtr(dst), value, width, n, ch.stream)
	default:
		err = ch.c.drv.Memset2DAsync(cuda.DevicePtr(dst), pitch, value, width, n, rows, ch.stream)
	}
	return ch.end("set", i, err)
}

// checkElements returns an error for invalid element widths, counts and pitches.
func checkElements(dst gpu.Ptr, pitch uint64, width int, n, rows uint64) error {
	const most = 1 << 60 // keeps products from overflowing
	switch {
	case width != 1 && width != 2 && width != 4:
		return fmt.Errorf("set elements of %d bytes: want 1, 2 or 4: %w", width, gpu.ErrInvalidCopy)
	case n > most/4 || rows > most, rows > 1 && pitch%uint64(width) != 0:
		return fmt.Errorf("set %d rows of %d elements of %d bytes, %d bytes apart: %w", rows, n, width, pitch, gpu.ErrInvalidCopy)
	case uint64(dst)%uint64(width) != 0:
		return fmt.Errorf("set elements of %d bytes at %#x: %w", width, uint64(dst), gpu.ErrInvalidPtr)
	}
	return nil
}
