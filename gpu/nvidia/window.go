package nvidia

import (
	"bytes"
	"crypto/rand"
	"errors"
	"sync"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/rm"
)

// windowBytes is the memory that the process maps, enough for about 800 control blocks, and
// windowTakes the memory that it takes on the GPU: the driver allocates in such pieces, and a
// shared piece can't be found. Like all of CUDA's own memory in a context it is not charged to the
// guest. The mapping takes as much of the GPU's aperture (BAR1).
const (
	windowBytes = 512 << 10
	windowTakes = 2 << 20
)

// window is memory on the GPU that the process stores to.
type window struct {
	at cuda.DevicePtr
	mu sync.Mutex
	m  rm.Mapping // nil: none, or closed
}

// openWindow makes the context's window. The context works without one too. Nothing of the guest
// runs yet, and the context is current.
func (c *Context) openWindow() {
	if c.d.kernelClient == nil || c.channelControl.control == nil {
		return
	}
	at, err := c.drv.MemAlloc(windowTakes)
	if err == nil {
		if c.window.m, err = c.mapWindow(at); err == nil {
			c.window.at = at
			return
		}
		err = errors.Join(err, c.drv.MemFree(at))
	}
	c.d.o.Log.Warn("kernels are asked to leave by copies, which take longer", "label", c.o.Label, "err", meaning(err))
}

// mapWindow maps memory and zeroes it. A nonce in the memory identifies the driver's object.
func (c *Context) mapWindow(p cuda.DevicePtr) (rm.Mapping, error) {
	nonce := make([]byte, 16)
	rand.Read(nonce)
	if err := errors.Join(
		c.drv.MemsetAsync(p, 0, 1, windowBytes, c.zero.stream),
		c.drv.MemcpyHtoDAsync(p, nonce, c.zero.stream),
		c.drv.StreamSynchronize(c.zero.stream),
	); err != nil {
		return nil, err
	}
	m, err := c.channelControl.control.Window(c.d.o.Kernel, c.d.kernelClient.GPU(), windowBytes, func(m rm.Mapping) bool {
		there := make([]byte, len(nonce))
		m.Copy(there, 0)
		return bytes.Equal(there, nonce)
	})
	if err != nil {
		return nil, err
	}
	for off := 0; off < len(nonce); off += 4 {
		m.Store32(off, 0)
	}
	c.table.add(allocation{base: uint64(p), size: windowBytes, kept: true})
	return m, nil
}

// closeWindow closes the window before its memory is reused.
func (c *Context) closeWindow() {
	w := &c.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		return
	}
	if err := w.m.Close(); err != nil {
		c.d.o.Log.Debug("unmap memory on the GPU", "label", c.o.Label, "err", err)
	}
	w.m = nil
}

// Window returns memory in which kernels see stores within some microseconds.
func (c *Context) Window() (p gpu.Ptr, size uint64, w gpu.Window) {
	c.window.mu.Lock()
	defer c.window.mu.Unlock()
	if c.window.m == nil {
		return 0, 0, nil
	}
	return gpu.Ptr(c.window.at), windowBytes, &c.window
}

// Store32 implements [gpu.Window]. Once the GPU is lost, stores have no effect. If the kernel
// driver has revoked the mapping, as it does before the host sleeps, a store waits until it is
// restored. If the GPU can't be woken, the store raises SIGBUS, which ends the process. That
// process is an executor with a single guest context, which is over then anyway, and the guest is
// notified as for any executor that was killed. No other process maps this memory: the daemon's
// controls of contexts have no windows.
func (w *window) Store32(off uint64, v uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m != nil {
		w.m.Store32(int(off), v)
	}
}

// Load32 implements [gpu.Window]. It takes a round trip across the bus. A revoked mapping has the
// same effect as for Store32.
func (w *window) Load32(off uint64) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		return 0
	}
	return w.m.Load32(int(off))
}
