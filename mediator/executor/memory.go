package executor

import (
	"fmt"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// maxAlign is the largest alignment that a guest may ask for. Every allocation has it.
const maxAlign = 256

func memAlloc(c *command, p *pending) error {
	a, err := abi.DecodeAlloc(c.entry)
	if err != nil {
		return err
	}
	switch {
	case a.Flags != 0 || a.Size == 0 || a.Align&(a.Align-1) != 0:
		return fmt.Errorf("allocate %d bytes aligned to %d with flags %#x: %w", a.Size, a.Align, a.Flags, abi.StatusInvalidValue)
	case a.Align > maxAlign:
		return fmt.Errorf("allocate with alignment %d, at most %d: %w", a.Align, maxAlign, abi.StatusNotSupported)
	}
	alloc := c.ch.x.alloc
	if a.Address != 0 {
		placer, ok := c.ch.x.o.Context.(gpu.Placer)
		if !ok {
			return fmt.Errorf("allocate at %#x: %w", a.Address, abi.StatusNotSupported)
		}
		alloc = func(size uint64) (gpu.Ptr, error) {
			return gpu.Ptr(a.Address), placer.AllocAt(gpu.Ptr(a.Address), size)
		}
	}
	ptr, err := c.ch.x.allocate(a.Size, alloc)
	p.com.Value[0] = uint64(ptr)
	if err == nil {
		c.ch.x.memory.add(allocation{ptr, a.Size})
		p.zeroed = c.ch.x.zeroes.fence(c.ch.x)
	}
	return err
}

func memFree(c *command, _ *pending) error {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	if _, found := c.ch.x.memory.search(gpu.Ptr(h.Handle)); !found {
		return abi.StatusInvalidAddress // or the executor's own
	}
	if err := c.ch.x.o.Context.Free(gpu.Ptr(h.Handle)); err != nil {
		return err
	}
	a, _ := c.ch.x.memory.around(gpu.Ptr(h.Handle))
	c.ch.x.record.freed(a)
	c.ch.x.memory.remove(gpu.Ptr(h.Handle))
	c.ch.x.forgetRefusals()
	return nil
}

func memInfo(c *command, p *pending) error {
	if _, err := abi.DecodeEmpty(c.entry); err != nil {
		return err
	}
	var err error
	p.com.Value[0], p.com.Value[1], err = c.ch.x.o.Context.Memory()
	if peak := c.ch.x.o.MemoryPeak; peak != nil && err == nil {
		p.com.Value[2] = max(peak(), c.ch.x.peakBefore)
	}
	return err
}

func memRange(c *command, p *pending) error {
	h, err := abi.DecodeHandle(c.entry)
	if err != nil {
		return err
	}
	a, found := c.ch.x.memory.around(gpu.Ptr(h.Handle))
	if !found {
		return abi.StatusInvalidAddress
	}
	p.com.Value[0], p.com.Value[1] = uint64(a.base), a.size
	return nil
}

// onGPU has p wait for the fence that a call returned.
func (p *pending) onGPU(f gpu.Fence, err error) error {
	p.fence, p.timed = f, err == nil
	return err
}

func copyIn(c *command, p *pending) error {
	t, err := abi.DecodeTransfer(c.entry)
	if err != nil {
		return err
	}
	src, err := c.window(t.Src, t.Size)
	if err != nil {
		return err
	}
	p.copied = t.Size
	c.leadCopy(t.Size)
	c.ch.endTurn()
	err = p.onGPU(c.ch.gpu.CopyIn(gpu.Ptr(t.Dst), src))
	if err == nil {
		c.ch.x.record.add(write{at: gpu.Ptr(t.Dst), data: src})
	}
	return err
}

func copyOut(c *command, p *pending) error {
	t, err := abi.DecodeTransfer(c.entry)
	if err != nil {
		return err
	}
	dst, err := c.window(t.Dst, t.Size)
	if err != nil {
		return err
	}
	p.copied = t.Size
	c.leadCopy(t.Size)
	c.ch.endTurn()
	return p.onGPU(c.ch.gpu.CopyOut(dst, gpu.Ptr(t.Src)))
}

func copyAcross(c *command, p *pending) error {
	t, err := abi.DecodeTransfer(c.entry)
	if err != nil {
		return err
	}
	p.copied = t.Size
	c.ch.x.record.end()
	return c.fill(p, fillTime(2*min(t.Size, maxFill), 1), func() (gpu.Fence, error) {
		return c.ch.gpu.Copy(gpu.Ptr(t.Dst), gpu.Ptr(t.Src), t.Size)
	})
}

func copyBox(c *command, p *pending) error {
	b, err := abi.DecodeCopy3D(c.entry)
	if err != nil {
		return err
	}
	box := gpu.Copy3D{Width: uint64(b.Width), Height: uint64(b.Height), Depth: uint64(b.Depth)}
	box.Dst = gpu.Side{Pitch: uint64(b.DstPitch), Rows: uint64(b.DstRows)}
	box.Src = gpu.Side{Pitch: uint64(b.SrcPitch), Rows: uint64(b.SrcRows)}
	if err := box.Check(); err != nil {
		return err
	}
	if err := c.place(&box, &box.Dst, b.DstPlace, b.Dst); err != nil {
		return err
	}
	if err := c.place(&box, &box.Src, b.SrcPlace, b.Src); err != nil {
		return err
	}
	p.copied = box.Bytes()
	if b.DstPlace != abi.PlaceWindow {
		c.ch.x.record.end()
	}
	if b.DstPlace == abi.PlaceWindow || b.SrcPlace == abi.PlaceWindow {
		c.ch.endTurn()
		return p.onGPU(c.ch.gpu.Copy3D(&box))
	}
	d := fillTime(2*box.Width, box.Height*box.Depth)
	return c.fill(p, d, func() (gpu.Fence, error) { return c.ch.gpu.Copy3D(&box) })
}

// place sets the memory of a side of a box.
func (c *command) place(box *gpu.Copy3D, s *gpu.Side, where abi.Place, at uint64) (err error) {
	if where == abi.PlaceWindow {
		s.Host, err = c.window(at, box.Extent(s))
		return err
	}
	s.Ptr = gpu.Ptr(at)
	return nil
}

func set(c *command, p *pending) error {
	s, err := abi.DecodeSet(c.entry)
	if err != nil {
		return err
	}
	const most = 1 << 60 // bytes; keeps the products below from overflowing
	width := uint64(s.Width)
	if s.Rows == 0 || s.Count > most/width || (s.Count > 0 && s.Rows > most/width/s.Count) {
		return fmt.Errorf("set %d rows of %d elements: %w", s.Rows, s.Count, abi.StatusInvalidValue)
	}
	p.copied = s.Rows * s.Count * width
	if s.Rows == 1 || s.Pitch == s.Count*width {
		err := c.fill(p, fillTime(p.copied, 1), func() (gpu.Fence, error) {
			return c.ch.gpu.Set(gpu.Ptr(s.Dst), s.Value, int(s.Width), s.Rows*s.Count)
		})
		if err == nil && p.copied > 0 {
			c.ch.x.record.add(write{at: gpu.Ptr(s.Dst), value: s.Value, width: int(s.Width), n: s.Rows * s.Count})
		}
		return err
	}
	c.ch.x.record.end()
	return c.fill(p, fillTime(s.Count*width, s.Rows), func() (gpu.Fence, error) {
		return c.ch.gpu.Set2D(gpu.Ptr(s.Dst), s.Pitch, s.Value, int(s.Width), s.Count, s.Rows)
	})
}
