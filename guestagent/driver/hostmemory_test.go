package driver_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// refused reports whether an error is that of invalid arguments.
func refused(err error) bool { return errors.Is(err, abi.StatusInvalidValue) }

func TestHostMemory(t *testing.T) {
	_, dev, gpu := open(t, drivertest.Options{SharedBytes: 8 << 20})
	ctx := t.Context()
	const n, at = 1<<20 + 17, 1000
	m := must[*driver.HostMemory](t)(dev.AllocHost(ctx, n+at))
	if m.Len() != n+at {
		t.Errorf("%d bytes, want %d", m.Len(), n+at)
	}
	want := fill(n, 7)
	check(t, m.Use(func(b []byte) { copy(b[at:], want) }))
	ptr := must[driver.Ptr](t)(gpu.Alloc(ctx, n))
	p := must[*driver.Pending](t)(gpu.Own().CopyInHost(ctx, ptr, m, at, n))
	check(t, p.Wait(ctx))
	got := make([]byte, n)
	check(t, gpu.CopyOut(ctx, got, ptr))
	if !bytes.Equal(got, want) {
		t.Fatal("what is in GPU memory is not what was in the host's")
	}
	check(t, m.Use(func(b []byte) { clear(b) }))
	p = must[*driver.Pending](t)(gpu.Own().CopyOutHost(ctx, m, at-3, ptr, n))
	check(t, p.Wait(ctx))
	check(t, m.Use(func(b []byte) {
		if !bytes.Equal(b[at-3:][:n], want) || b[at-4] != 0 || b[at-3+n] != 0 {
			t.Error("what came back is not what was copied, or not where")
		}
	}))
}

func TestHostMemoryBounds(t *testing.T) {
	_, dev, gpu := open(t, drivertest.Options{SharedBytes: 8 << 20})
	_, other, _ := open(t, drivertest.Options{SharedBytes: 8 << 20})
	ctx := t.Context()
	m := must[*driver.HostMemory](t)(dev.AllocHost(ctx, 4096))
	theirs := must[*driver.HostMemory](t)(other.AllocHost(ctx, 4096))
	ptr := must[driver.Ptr](t)(gpu.Alloc(ctx, 8192))
	for _, c := range []struct {
		m         *driver.HostMemory
		offset, n int
	}{{m, 0, 4097}, {m, 4096, 1}, {m, -1, 2}, {m, 1, -1}, {m, 1 << 62, 1 << 62}, {theirs, 0, 16}} {
		if _, err := gpu.Own().CopyInHost(ctx, ptr, c.m, c.offset, c.n); !refused(err) {
			t.Errorf("copy in of %d bytes at %d: %v", c.n, c.offset, err)
		}
		if _, err := gpu.Own().CopyOutHost(ctx, c.m, c.offset, ptr, c.n); !refused(err) {
			t.Errorf("copy out of %d bytes at %d: %v", c.n, c.offset, err)
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := dev.AllocHost(ctx, n); !refused(err) {
			t.Errorf("allocation of %d bytes: %v", n, err)
		}
	}
	if _, err := dev.AllocHost(ctx, 1<<30); err == nil {
		t.Error("more than there is was allocated")
	}
	p := must[*driver.Pending](t)(gpu.Own().CopyInHost(ctx, ptr, m, 4096, 0))
	check(t, p.Wait(ctx))
	m.Free()
	if err := m.Use(func([]byte) { t.Error("freed memory was used") }); !refused(err) {
		t.Errorf("use after free: %v", err)
	}
	if _, err := gpu.Own().CopyInHost(ctx, ptr, m, 0, 1); !refused(err) {
		t.Errorf("copy after free: %v", err)
	}
}

// TestHostMemoryFreedUnderWay checks that memory which is freed while copies use it returns when
// they have ended, and not before, also if their channel ends first.
func TestHostMemoryFreedUnderWay(t *testing.T) {
	for _, closed := range []bool{false, true} {
		_, dev, gpu := open(t, drivertest.Options{SharedBytes: 8 << 20})
		ctx := t.Context()
		ch := must[*driver.Channel](t)(gpu.NewChannel(ctx, driver.ChannelOptions{}))
		ptr := must[driver.Ptr](t)(gpu.Alloc(ctx, 4096))
		n := 1 << 20
		for { // nearly all of it
			m, err := dev.AllocHost(without(ctx), n)
			if err != nil {
				break
			}
			m.Free()
			n += 256 << 10
		}
		n -= 256 << 10
		m := must[*driver.HostMemory](t)(dev.AllocHost(ctx, n))
		var last *driver.Pending
		for range 64 {
			last = must[*driver.Pending](t)(ch.CopyInHost(ctx, ptr, m, 0, 4096))
		}
		m.Free()
		if closed {
			check(t, ch.Close())
		} else {
			check(t, last.Wait(ctx))
		}
		again, err := dev.AllocHost(ctx, n)
		if err != nil {
			t.Fatalf("closed %v: %v", closed, err)
		}
		again.Free()
		again.Free()
		must[*driver.HostMemory](t)(dev.AllocHost(ctx, n))
		if _, err := dev.AllocHost(without(ctx), n); err == nil {
			t.Errorf("closed %v: what was given back once is there twice", closed)
		}
	}
}

// without returns a context that has ended, so that a call with it does not wait.
func without(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
