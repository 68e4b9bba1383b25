package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"vgpud/mediator/vgpu/abi"
)

// HostMemory is memory of the guest that the GPU copies from and to directly, as CUDA's page-locked
// memory: a part of BAR2, which the host has registered with its GPU. Copies of other memory go
// through such parts, piece by piece, and cost a processor's copy each.
//
// It is taken from the memory that other copies need, so it should be little compared with
// [Info].SharedBytes.
type HostMemory struct {
	dev *Device
	w   abi.Window
	n   int
	// users counts the owner, until Free, and the commands under way that name the memory. The last
	// one frees it.
	users atomic.Int64
	freed atomic.Bool
}

// AllocHost allocates n bytes of host memory with undefined contents. Without room it waits until
// ctx ends.
func (d *Device) AllocHost(ctx context.Context, n int) (*HostMemory, error) {
	if n <= 0 {
		return nil, fmt.Errorf("allocate %d bytes of host memory: %w", n, abi.StatusInvalidValue)
	}
	w, err := d.staging.allocWait(ctx, uint64(n), abi.PageSize)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of host memory: %w", n, err)
	}
	m := &HostMemory{dev: d, w: w, n: n}
	m.users.Store(1)
	return m, nil
}

// Len returns the length in bytes.
func (m *HostMemory) Len() int { return m.n }

// Addr returns the memory's address in this process, a multiple of 4096. The rules of Use hold for
// accesses there, too.
func (m *HostMemory) Addr() uintptr { return addressOf(m.dev.shared) + uintptr(m.w.Offset) }

// HostAddress returns the address at which the context's kernels find host memory, and with which
// copies within GPU memory may name it: as CUDA's mapped memory. It is the memory's own address in
// this process, if the host can arrange for that, which the first call of a context tries for all
// of the device's host memory. The address stays the memory's until it is freed. The caller keeps
// it while kernels use it.
func (c *Context) HostAddress(ctx context.Context, m *HostMemory) (Ptr, error) {
	if err := c.dev.offers(abi.FeatureWindowAddresses); err != nil {
		return 0, err
	}
	if m.dev != c.dev {
		return 0, fmt.Errorf("host memory of another device: %w", abi.StatusInvalidValue)
	}
	if !m.acquire() {
		return 0, fmt.Errorf("host memory that was freed: %w", abi.StatusInvalidValue)
	}
	defer m.release()
	ask := abi.Mapping{Window: abi.Window{Offset: m.w.Offset, Size: uint64(m.n)}, Address: uint64(m.Addr())}
	v, err := c.Own().call(ctx, abi.OpWindowAddress, ask)
	if errors.Is(err, abi.StatusInvalidAddress) {
		ask.Address = 0
		v, err = c.Own().call(ctx, abi.OpWindowAddress, ask)
	}
	if err != nil {
		return 0, fmt.Errorf("address of host memory: %w", err)
	}
	return Ptr(v[0]), nil
}

// Use calls f with the memory, which f must not keep. If the device is unplugged meanwhile, f ends
// with a panic inside it and Use returns [ErrGone]. Bytes that a copy under way reads or writes
// have undefined values.
func (m *HostMemory) Use(f func(b []byte)) error {
	if !m.acquire() {
		return fmt.Errorf("use host memory that was freed: %w", abi.StatusInvalidValue)
	}
	defer m.release()
	return m.dev.touch(func() { f(m.dev.shared[m.w.Offset:][:m.n:m.n]) })
}

// Free frees the memory when the copies that use it have ended. Freeing it again does nothing.
func (m *HostMemory) Free() {
	if !m.freed.Swap(true) {
		m.release()
	}
}

// acquire keeps the memory until the matching release. It returns false if the memory was freed.
func (m *HostMemory) acquire() bool {
	for n := m.users.Load(); n > 0 && !m.freed.Load(); n = m.users.Load() {
		if m.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (m *HostMemory) release() {
	if m.users.Add(-1) == 0 {
		m.dev.staging.release(m.w)
	}
}

// window returns the offset in BAR2 of n bytes at an offset of the memory.
func (m *HostMemory) window(offset, n int) (uint64, error) {
	if offset < 0 || n < 0 || offset > m.n || n > m.n-offset {
		return 0, fmt.Errorf("%d bytes at %d of %d bytes of host memory: %w", n, offset, m.n, abi.StatusInvalidValue)
	}
	return m.w.Offset + uint64(offset), nil
}

// CopyInHost copies n bytes of host memory, starting at offset, to GPU memory, after the channel's
// earlier commands. The GPU may read them until the Pending is done.
func (ch *Channel) CopyInHost(ctx context.Context, dst Ptr, src *HostMemory, offset, n int) (*Pending, error) {
	at, err := src.window(offset, n)
	if err != nil {
		return nil, fmt.Errorf("copy to %#x: %w", uint64(dst), err)
	}
	p, err := ch.copyHost(ctx, abi.OpCopyIn, abi.Transfer{Dst: uint64(dst), Src: at, Size: uint64(n)}, src)
	if err != nil {
		return nil, fmt.Errorf("copy %d bytes to %#x: %w", n, uint64(dst), err)
	}
	return p, nil
}

// CopyOutHost copies n bytes of GPU memory to host memory, starting at offset, after the channel's
// earlier commands. The copy is complete when the Pending is done.
func (ch *Channel) CopyOutHost(ctx context.Context, dst *HostMemory, offset int, src Ptr, n int) (*Pending, error) {
	at, err := dst.window(offset, n)
	if err != nil {
		return nil, fmt.Errorf("copy from %#x: %w", uint64(src), err)
	}
	p, err := ch.copyHost(ctx, abi.OpCopyOut, abi.Transfer{Dst: at, Src: uint64(src), Size: uint64(n)}, dst)
	if err != nil {
		return nil, fmt.Errorf("copy %d bytes from %#x: %w", n, uint64(src), err)
	}
	return p, nil
}

func (ch *Channel) copyHost(ctx context.Context, op abi.Opcode, t abi.Transfer, m *HostMemory) (*Pending, error) {
	if m.dev != ch.dev {
		return nil, fmt.Errorf("host memory of another device: %w", abi.StatusInvalidValue)
	}
	p := new(Pending)
	if t.Size == 0 {
		return p, nil
	}
	if !m.acquire() {
		return nil, fmt.Errorf("host memory that was freed: %w", abi.StatusInvalidValue)
	}
	p.host.Store(m)
	var e abi.Entry
	t.Encode(&e)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: op}, nil); err != nil {
		if !p.busy.Load() { // else it was sent, and the channel releases the memory
			p.releaseHost()
		}
		return nil, err
	}
	return p, nil
}
