package nvidia

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// hostFile returns a file in memory, mapped.
func hostFile(t *testing.T, n int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("host", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "host")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return f, mem
}

// hostMaps counts runs of TestMapHost: a place that was mapped stays taken until the process ends.
var hostMaps atomic.Uint64

// TestMapHost checks that a kernel and copies reach memory of the host where it was asked for, and
// that places which this process needs are refused.
func TestMapHost(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	const size = 4 * hostPage
	chosen := gpu.Ptr(0x0123_4567_8000) + gpu.Ptr(hostMaps.Add(1))<<34
	f, mem := hostFile(t, size+hostPage)
	part := mem[hostPage:]
	c1, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	ch := c1.(*Channel)
	for _, at := range []gpu.Ptr{0, chosen} {
		p, err := c.MapHost(f, hostPage, part, at)
		if err != nil || at != 0 && p != at {
			t.Fatalf("mapped at %#x, asked for %#x: %v", uint64(p), uint64(at), err)
		}
		binary.LittleEndian.PutUint64(part[size-8:], 41)
		fence, err := ch.Launch(kernel(t, c, "add", uint64(p)+size-8))
		if o := ran(t, ch, fence, err); o.Err != nil {
			t.Fatal(o.Err)
		}
		if v := binary.LittleEndian.Uint64(part[size-8:]); v != 42 {
			t.Errorf("the kernel left %d at %#x", v, uint64(p))
		}
		own := alloc(t, c, 64)
		fence, err = ch.Copy(own, p+size-64, 64)
		if o := ran(t, ch, fence, err); o.Err != nil {
			t.Fatal(o.Err)
		}
		if v := binary.LittleEndian.Uint64(read(t, ch, own, 64)[56:]); v != 42 {
			t.Errorf("copied %d", v)
		}
		if _, err := ch.Copy(own, p+size-63, 64); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("copy from behind the end: %v", err)
		}
		if err := c.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("free memory of the host: %v", err)
		}
	}
	code := gpu.Ptr(cuda.Address(mem)) &^ (hostPage - 1)
	for _, at := range []gpu.Ptr{chosen, chosen + hostPage, code, 0xc0_0000_0000, chosen + 1<<32 + 1, 1 << 47, ^gpu.Ptr(hostPage - 1)} {
		if p, err := c.MapHost(f, hostPage, part, at); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("asked for %#x: mapped at %#x, %v", uint64(at), uint64(p), err)
		}
	}
	x.gpu.Fail("MemHostRegister", cuda.ErrOutOfMemory)
	if _, err := c.MapHost(f, hostPage, part, 2*chosen); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("mapped what the driver can't lock: %v", err)
	}
	x.gpu.Fail("MemHostRegister", 0)
	if _, err := c.MapHost(f, hostPage, part, 2*chosen); err != nil {
		t.Errorf("the place was not given back: %v", err)
	}
}
