package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/accounting/nvreg"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
)

func TestProgramsShareTheGPU(t *testing.T) {
	path, _ := serve(t, soft.Options{Machine: machine.Config{Mode: machine.Slices}})
	var wg sync.WaitGroup
	for i := range 3 {
		d := dial(t, path)
		r := newRig(t, d, gpu.ContextOptions{Label: fmt.Sprint("guest", i)})
		wg.Go(func() {
			for n := range 4 {
				r.double(uint32(500*n+i+1), 5)
			}
		})
	}
	wg.Wait()
	u, err := dial(t, path).Usage()
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Labels) != 3 || u.Machine.Launches != 60 {
		t.Errorf("%d labels and %d launches, want 3 and 60", len(u.Labels), u.Machine.Launches)
	}
}

// The daemon maps the registers, finds the runlist as on hardware, and can't write them.
func TestRegistersOverTheSocket(t *testing.T) {
	path, stop := serve(t, soft.Options{})
	d := dial(t, path)
	f, err := d.RegisterFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.Mmap(int(f.Fd()), 0, nvreg.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the registers can be mapped for writing")
	}
	if _, err := f.WriteAt([]byte{1}, 0); err == nil {
		t.Error("the registers can be written")
	}
	mem, space, err := soft.MapRegisters(f)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	list, err := nvreg.FindGraphics(space)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, d, gpu.ContextOptions{})
	r.launch("forever", 1, 32, nil)
	for st := list.Status(space).Decode(); !st.Busy || st.TSGID != uint16(r.ctx.Group()); st = list.Status(space).Decode() {
		runtime.Gosched()
	}
	stop()
	if !list.Status(space).Gone() {
		t.Error("the GPU is gone and its registers don't show it")
	}
}

func TestErrorsCrossTheSocket(t *testing.T) {
	path, _ := serve(t, soft.Options{})
	d := dial(t, path)
	r := newRig(t, d, gpu.ContextOptions{MemoryLimit: 1 << 20})
	if _, err := r.ctx.Alloc(2 << 20); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("alloc: %v", err)
	}
	if err := r.ctx.Free(77); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free: %v", err)
	}
	if _, err := r.ctx.LoadModule([]byte(".version 7.0 .target sm_80 nonsense")); !errors.Is(err, gpu.ErrInvalidModule) {
		t.Errorf("load: %v", err)
	}
	m, err := r.ctx.LoadModule([]byte(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { .reg .b32 %r<5>; wgmma.fence.sync.aligned; ret; }"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	if _, err := r.ch.Launch(&gpu.Launch{Function: k, Grid: one, Block: one}); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "kernel k, PTX line 4: wgmma.fence.sync.aligned: matrix instructions") {
		t.Errorf("launch of a kernel that the GPU lacks an instruction for: %v", err)
	}
	f := r.launch("double", 1, 32, doubleParams(0xdead0000, 32))
	o := r.wait(f)
	var fault *gpu.Fault
	if !errors.As(o.Err, &fault) || fault.Kernel != "double" || fault.Address != 0xdead0000 {
		t.Errorf("a wild kernel: %v", o.Err)
	}
	if err := r.ctx.Fault(); !errors.As(err, &fault) {
		t.Errorf("the context's fault: %v", err)
	}
	newRig(t, d, gpu.ContextOptions{}).double(100, 3)
}

// A texture's border, which JSON's numbers can't hold, crosses the socket, and so do its errors.
func TestTexturesCrossTheSocket(t *testing.T) {
	path, _ := serve(t, soft.Options{})
	r := newRig(t, dial(t, path), gpu.ContextOptions{})
	m, err := r.ctx.LoadModule([]byte(`.version 7.0
.target sm_80
.address_size 64
.global .texref image;
.visible .entry border(.param .u64 out) { .reg .b64 %rd<3>; .reg .f32 %f<8>; ld.param.u64 %rd1, [out];
	mov.f32 %f1, 0fBF800000; tex.1d.v4.f32.f32 {%f2,%f3,%f4,%f5}, [image, {%f1}]; st.global.v4.f32 [%rd1], {%f2,%f3,%f4,%f5}; ret; }`))
	if err != nil {
		t.Fatal(err)
	}
	c := r.ctx.(gpu.Texturing)
	a, err := c.NewArray(gpu.ArrayShape{Width: 4, Texel: gpu.Texel{Format: gpu.FormatFloat, Channels: 1}})
	if err != nil {
		t.Fatal(err)
	}
	inf, nan := float32(math.Inf(-1)), math.Float32frombits(0x7fc00001)
	tex, err := c.NewTexture(gpu.TextureMemory{Array: a}, gpu.Sampling{Address: [3]gpu.AddressMode{gpu.AddressBorder}, Border: [4]float32{inf, nan, 3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.BindReference(m, "image", tex); err != nil {
		t.Fatal(err)
	}
	if err := c.BindReference(m, "border", tex); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("bind a kernel: %v", err)
	}
	k, err := m.Function("border")
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.ctx.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	if _, err := r.ch.Launch(&gpu.Launch{Function: k, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, uint64(out))}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	f, err := r.ch.CopyOut(b, out)
	if err != nil {
		t.Fatal(err)
	}
	if o := r.wait(f); o.Err != nil {
		t.Fatal(o.Err)
	}
	var got [4]uint32
	for i := range got {
		got[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	if want := [4]uint32{math.Float32bits(inf), 0x7fc00001, math.Float32bits(3), math.Float32bits(4)}; got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
	if err := tex.Free(); err != nil {
		t.Fatal(err)
	}
	if err := tex.Free(); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("freed twice: %v", err)
	}
}

// A program that dies during a kernel affects no other program.
func TestDyingProgram(t *testing.T) {
	path, _ := serve(t, soft.Options{Contexts: 2})
	alive := newRig(t, dial(t, path), gpu.ContextOptions{})
	for range 5 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := newDriver(c)
		if err != nil {
			t.Fatal(err)
		}
		dev := soft.NewDevice(d)
		r := newRig(t, dev, gpu.ContextOptions{MemoryLimit: 32 << 20})
		if _, err := r.ctx.Alloc(30 << 20); err != nil {
			t.Fatal(err)
		}
		f := r.launch("forever", 1, 32, nil)
		// This is what the kernel does for a killed process.
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.ch.Wait(context.Background(), f); err != nil {
			t.Error(err)
		}
		if o := r.ch.Outcome(f); !errors.Is(o.Err, gpu.ErrLost) {
			t.Errorf("what it ran ended with %v", o.Err)
		}
		_ = dev.Close() // closes the socket again, which is an error
		alive.double(200, 2)
	}
	for {
		u, err := dial(t, path).Usage()
		if err != nil {
			t.Fatal(err)
		}
		free, _, err := alive.ctx.Memory()
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Groups) == 1 && free >= 60<<20 {
			break // break // all that the others left
		}
		runtime.Gosched()
	}
}

func TestServerGoesAway(t *testing.T) {
	path, stop := serve(t, soft.Options{})
	d := dial(t, path)
	r := newRig(t, d, gpu.ContextOptions{})
	f := r.launch("forever", 1, 32, nil)
	waited := make(chan error)
	go func() { waited <- r.ch.Wait(context.Background(), f) }()
	stop()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if o := r.ch.Outcome(f); !errors.Is(o.Err, gpu.ErrLost) {
		t.Errorf("the launch ended with %v", o.Err)
	}
	if _, err := r.ctx.Alloc(4); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("alloc: %v", err)
	}
	if _, err := d.Now(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("now: %v", err)
	}
	if _, err := Dial(t.Context(), path); err == nil {
		t.Error("connected to a server that is gone")
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket's mode is %v, %v; want 0600", st.Mode(), err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "running there") {
		t.Errorf("a second server on the same socket: %v", err)
	}
}

func TestTooManyConnections(t *testing.T) {
	e, err := soft.Start(soft.Options{MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	path := filepath.Join(t.TempDir(), "gpu.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := NewServer(e, ServerOptions{Connections: 2}).Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		dial(t, path)
	}
	if d, err := Dial(t.Context(), path); err == nil {
		t.Error("a third of two connections")
		d.Close()
	}
	cancel()
	wg.Wait()
}

// Everything that a server and its programs open is closed when they are gone.
func TestNothingLeaks(t *testing.T) {
	once := func() {
		path, stop := serve(t, soft.Options{})
		d, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, d, gpu.ContextOptions{})
		r.double(100, 1)
		r.double(100_000, 1) // large enough to need the copier
		if _, err := d.Source(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ctx.NewChannel(); err != nil {
			t.Fatal(err)
		}
		r.launch("forever", 1, 32, nil)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
	once() // opens what Go keeps open
	files, maps, routines := count(t)
	for range 5 {
		once()
	}
	f, m, g := count(t)
	for i := 0; g > routines && i < 1000; i++ {
		runtime.Gosched() // the last of them are about to exit
		f, m, g = count(t)
	}
	if f > files || g > routines || m > maps+10 {
		t.Errorf("%d files, %d mappings, %d goroutines; were %d, %d, %d", f, m, g, files, maps, routines)
	}
}

func count(t *testing.T) (files, maps, routines int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), bytes.Count(b, []byte("vgpud-soft")), runtime.NumGoroutine()
}
