package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/simt"
	"vgpud/internal/memfd"
)

// hostMemory returns a file in memory of n bytes, mapped.
func hostMemory(t *testing.T, n, seals int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("host", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "host")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return f, mem
}

// doublePTX has a kernel that stores twice the word at from at to.
const doublePTX = `
.version 7.0
.target sm_80
.address_size 64

.visible .entry double(.param .u64 to, .param .u64 from)
{
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [to];
	ld.param.u64 %rd2, [from];
	ld.global.u64 %rd3, [%rd2];
	add.u64 %rd3, %rd3, %rd3;
	st.global.u64 [%rd1], %rd3;
	ret;
}
`

// TestMapHost checks that kernels and copies reach memory of the host, at a place of the device's and
// at one that was asked for, exactly as much of it as was mapped.
func TestMapHost(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	const pages, chosen = 4, 0x1234_5678_9000
	f, mem := hostMemory(t, (pages+2)*pageSize, memfd.Seals)
	part := mem[pageSize : (pages+1)*pageSize]
	for _, at := range []gpu.Ptr{0, chosen} {
		c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.(gpu.HostMapper).MapHost(f, pageSize, part, at)
		if err != nil || at != 0 && p != at {
			t.Fatalf("mapped at %#x, asked for %#x: %v", uint64(p), uint64(at), err)
		}
		m, err := c.LoadModule([]byte(doublePTX))
		if err != nil {
			t.Fatal(err)
		}
		fn, err := m.Function("double")
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		wait := func(fence gpu.Fence, err error) error {
			t.Helper()
			if err != nil {
				return err
			}
			if err := ch.Wait(t.Context(), fence); err != nil {
				t.Fatal(err)
			}
			return ch.Outcome(fence).Err
		}
		double := func(to, from gpu.Ptr) error {
			one := gpu.Dim3{X: 1, Y: 1, Z: 1}
			params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(to)), uint64(from))
			return wait(ch.Launch(&gpu.Launch{Function: fn, Grid: one, Block: one, Params: params}))
		}
		binary.LittleEndian.PutUint64(part[8:], 21)
		if err := double(p+pages*pageSize-8, p+8); err != nil {
			t.Fatal(err)
		}
		if v := binary.LittleEndian.Uint64(part[pages*pageSize-8:]); v != 42 {
			t.Errorf("the kernel stored %d", v)
		}
		own, err := c.Alloc(pageSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := wait(ch.Set(p+pageSize, 0xa5, 1, pageSize)); err != nil {
			t.Fatal(err)
		}
		if err := wait(ch.Copy(own, p+pageSize, pageSize)); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, pageSize)
		if err := wait(ch.CopyOut(out, own)); err != nil || !bytes.Equal(out, bytes.Repeat([]byte{0xa5}, pageSize)) {
			t.Errorf("copied %x…: %v", out[:8], err)
		}
		for _, n := range []uint64{pages*pageSize + 1, 1 << 62} {
			if err := wait(ch.Copy(p, p, n)); !errors.Is(err, gpu.ErrInvalidPtr) {
				t.Errorf("copy %d bytes of %d: %v", n, pages*pageSize, err)
			}
		}
		if err := c.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("free memory of the host: %v", err)
		}
		var fault *gpu.Fault
		if err := double(own, p+pages*pageSize); !errors.As(err, &fault) || fault.Kind != gpu.FaultAddress {
			t.Errorf("behind the end: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(part, 1) // it is still this process's
	}
}

// TestMapHostRefuses checks what is not mapped: parts that are not pages of the file, places where
// something is, too many parts, and files that can be cut short, which would end the GPU.
func TestMapHostRefuses(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	f, mem := hostMemory(t, 2*pageSize, memfd.Seals)
	unsealed, _ := hostMemory(t, 2*pageSize, 0)
	c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.Alloc(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	e := c.(*deviceContext).cd
	for name, x := range map[string]struct {
		f            *os.File
		offset, size uint64
		at           gpu.Ptr
	}{
		"nothing":          {f, 0, 0, 0},
		"half a page":      {f, 0, pageSize / 2, 0},
		"from half a page": {f, pageSize / 2, pageSize, 0},
		"behind the end":   {f, pageSize, 2 * pageSize, 0},
		"far behind":       {f, 1 << 63, pageSize, 0},
		"all there is":     {f, pageSize, ^uint64(pageSize - 1), 0},
		"at half a page":   {f, 0, pageSize, 0x1000_0800},
		"over an own page": {f, 0, pageSize, own &^ (pageSize - 1)},
		"over the end":     {f, 0, 2 * pageSize, gpu.Ptr(simt.GlobalLimit - pageSize)},
		"past the end":     {f, 0, pageSize, 1 << 63},
		"a file unsealed":  {unsealed, 0, pageSize, 0},
		"no file":          {os.Stderr, 0, pageSize, 0},
	} {
		if at, err := e.MapHost(x.f, x.offset, x.size, x.at); err == nil {
			t.Errorf("%s: mapped at %#x", name, uint64(at))
		}
	}
	for i := range maxHostMaps {
		if _, err := c.(gpu.HostMapper).MapHost(f, 0, mem, gpu.Ptr(0x4000_0000_0000+i<<32)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.(gpu.HostMapper).MapHost(f, 0, mem, 0x4800_0000_0000); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("one part too many: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.MapHost(f, 0, pageSize, 0); err == nil {
		t.Error("mapped into a closed context")
	}
}
