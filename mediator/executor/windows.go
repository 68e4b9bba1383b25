package executor

import (
	"fmt"
	"sync"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// windows are the addresses of staging windows in the context's address space. All windows are
// mapped at once, by the first command that asks for an address, and stay until the context ends.
type windows struct {
	at      gpu.Ptr // of the first byte that is mapped; 0: they are not mapped
	err     error   // of the last attempt, for the command that made it
	busy    bool    // an attempt is under way
	mapping sync.WaitGroup
}

// lowestChosen is the lowest address that a guest may choose for windows.
const lowestChosen = 1 << 40

// windowAddress answers the address of a window. Mapping takes as long as locking the pages, so it
// has a goroutine of its own, and the command waits.
func windowAddress(c *command, p *pending) error {
	x := c.ch.x
	m, err := abi.DecodeMapping(c.entry)
	if err != nil {
		return err
	}
	mapper, ok := x.o.Context.(gpu.HostMapper)
	if !ok || x.o.SharedFile == nil || len(x.o.Mappable) == 0 {
		return fmt.Errorf("address of a window: %w", abi.StatusNotSupported)
	}
	if _, err := c.window(m.Window.Offset, m.Window.Size); err != nil {
		return err
	}
	start := uint64(len(x.o.Shared) - len(x.o.Mappable))
	before := m.Window.Offset - start // of mapped memory, before the window
	base := gpu.Ptr(m.Address - before)
	w := &x.windows
	switch {
	case m.Address != 0 && (m.Address < lowestChosen+before || base%abi.PageSize != 0):
		return fmt.Errorf("window at %#x: %w", m.Address, abi.StatusInvalidAddress)
	case w.busy:
		return errWaits
	case w.err != nil:
		err, w.err = w.err, nil
		return err
	case w.at == 0:
		x.mapWindows(mapper, m.Address, base, int64(start))
		return errWaits
	case m.Address != 0 && base != w.at:
		return fmt.Errorf("window at %#x, but windows are mapped at %#x: %w", m.Address, uint64(w.at), abi.StatusInvalidAddress)
	}
	p.com.Value[0] = uint64(w.at) + before
	return nil
}

// mapWindows begins to map all windows. Where they are to be at the guest's choice, base says where.
func (x *Executor) mapWindows(mapper gpu.HostMapper, chosen uint64, base gpu.Ptr, offset int64) {
	if chosen == 0 {
		base = 0
	}
	w := &x.windows
	w.busy = true
	w.mapping.Go(func() {
		if x.o.Registered != nil {
			x.o.Registered()
		}
		at, err := mapper.MapHost(x.o.SharedFile, offset, x.o.Mappable, base)
		x.do(func() { w.at, w.err, w.busy = at, err, false })
	})
}
