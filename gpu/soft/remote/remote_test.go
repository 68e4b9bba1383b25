package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/nvreg"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
)

const source = `
.version 7.0
.target sm_80
.address_size 64

.visible .entry double(.param .u64 p, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra done;
	mul.wide.u32 %rd2, %r5, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	add.s32 %r2, %r2, %r2;
	st.global.u32 [%rd3], %r2;
done:
	ret;
}

.visible .entry forever()
{
again:
	bra again;
}

.visible .entry empty()
{
	ret;
}
`

// serve runs a server for the test and returns its socket's path and a function that ends it.
func serve(t testing.TB, o soft.Options) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gpu.sock")
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 64 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Run(ctx, ServerOptions{Socket: path, GPU: o, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return path, stop
}

func dial(t testing.TB, path string) *soft.Device {
	t.Helper()
	d, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return d
}

// rig is a context with a module and a channel.
type rig struct {
	t   testing.TB
	ctx gpu.Context
	m   gpu.Module
	ch  gpu.Channel
}

func newRig(t testing.TB, d gpu.Device, o gpu.ContextOptions) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	if r.ctx, err = d.NewContext(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if r.m, err = r.ctx.LoadModule([]byte(source)); err != nil {
		t.Fatal(err)
	}
	if r.ch, err = r.ctx.NewChannel(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) launch(name string, blocks, threads uint32, params []byte) gpu.Fence {
	r.t.Helper()
	f, err := r.m.Function(name)
	if err != nil {
		r.t.Fatal(err)
	}
	fence, err := r.ch.Launch(&gpu.Launch{Function: f, Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1},
		Block: gpu.Dim3{X: threads, Y: 1, Z: 1}, Params: params})
	if err != nil {
		r.t.Fatal(err)
	}
	return fence
}

func (r *rig) wait(f gpu.Fence) gpu.Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.ch.Wait(ctx, f); err != nil {
		r.t.Fatal(err)
	}
	return r.ch.Outcome(f)
}

func doubleParams(p gpu.Ptr, n uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(p)), n)
}

// double has the GPU double n numbers times over, and checks them.
func (r *rig) double(n uint32, times int) {
	r.t.Helper()
	p, err := r.ctx.Alloc(uint64(n) * 4)
	if err != nil {
		r.t.Fatal(err)
	}
	in, out := make([]byte, 4*n), make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(in[4*i:], i)
	}
	if _, err := r.ch.CopyIn(p, in); err != nil {
		r.t.Fatal(err)
	}
	for range times {
		r.launch("double", (n+63)/64, 64, doubleParams(p, n))
	}
	f, err := r.ch.CopyOut(out, p)
	if err != nil {
		r.t.Fatal(err)
	}
	if o := r.wait(f); o.Err != nil {
		r.t.Fatal(o.Err)
	}
	for i := range n {
		if v := binary.LittleEndian.Uint32(out[4*i:]); v != i<<times {
			r.t.Fatalf("number %d is %d, want %d", i, v, i<<times)
		}
	}
	if err := r.ctx.Free(p); err != nil {
		r.t.Fatal(err)
	}
}

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
		t.Error("the GPU is gone and its registers don't say so")
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

// A program that dies in mid-kernel takes nothing along but its own.
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
		// What the kernel does of a process that is killed.
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
			break // what the others had is free
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
		r.double(100_000, 1) // whose copies need the copier
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
	once() // what Go opens once for itself
	files, maps, routines := count(t)
	for range 5 {
		once()
	}
	f, m, g := count(t)
	for i := 0; g > routines && i < 1000; i++ {
		runtime.Gosched() // the last of them are on their way out
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

// A packet of anything is answered, or ends its connection, and nobody else's.
func FuzzServer(f *testing.F) {
	e, err := soft.Start(soft.Options{MemoryBytes: 16 << 20, Contexts: 8})
	if err != nil {
		f.Fatal(err)
	}
	s := NewServer(e, ServerOptions{})
	f.Cleanup(func() {
		if err := e.Close(); err != nil {
			f.Error(err)
		}
	})
	for _, seed := range []string{
		`{"op":"hello","version":1}`, `{"op":"new-context","memory_limit":1048576}`, `{"op":"alloc","context":1,"size":4096}`,
		`{"op":"free","context":1,"ptr":18446744073709551615}`, `{"op":"load","context":1}`, `{"op":"new-channel","context":1}`,
		`{"op":"slice","context":1,"slice":-1}`, `{"op":"printf","context":1,"max":-5}`, `{"op":"close-context","context":1}`,
		`{"op":"global","context":1,"id":4294967295,"name":"x"}`, `{`, `[]`, `{"op":12}`,
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, packet []byte, files int) {
		a, b := pair(t)
		done := make(chan struct{})
		go func() { defer close(done); s.serve(b) }()
		if len(packet) > maxPacket || len(packet) == 0 {
			packet = []byte("{}")
		}
		buf := make([]byte, maxPacket)
		ask := func(p []byte, with ...*os.File) bool {
			if err := send(a, p, with...); err != nil {
				return false
			}
			_, got, err := receive(a, buf)
			_ = closeAll(got)
			return err == nil
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		var with []*os.File
		for range min(max(files, 0), 5) {
			with = append(with, null)
		}
		ask(packet, with...)
		if ask([]byte(`{"op":"hello","version":1}`)) && ask([]byte(`{"op":"new-context","memory_limit":65536}`)) {
			ask(packet, with...)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		<-done
		if u, err := e.Usage(); err != nil || len(u.Groups) != 0 {
			t.Fatalf("%d contexts are left, %v", len(u.Groups), err)
		}
	})
}

// pair is two ends of a connection.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// BenchmarkEmptyKernel is submit to completion of an empty kernel through the other side's ring: while the GPU looks
// for work, and when it has gone to sleep. It counts the kernel's own time on the GPU, which is reported beside it.
func BenchmarkEmptyKernel(b *testing.B) {
	path, _ := serve(b, soft.Options{})
	r := newRig(b, dial(b, path), gpu.ContextOptions{})
	f, err := r.m.Function("empty")
	if err != nil {
		b.Fatal(err)
	}
	l := &gpu.Launch{Function: f, Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}
	for name, pause := range map[string]time.Duration{"awake": 0, "asleep": time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			var took, gpuTime []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				time.Sleep(pause)
				start := time.Now()
				fence, err := r.ch.Launch(l)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.ch.Wait(context.Background(), fence); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				o := r.ch.Outcome(fence)
				gpuTime = append(gpuTime, o.End-o.Start)
			}
			slices.Sort(took)
			slices.Sort(gpuTime)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-us")
			b.ReportMetric(float64(gpuTime[len(gpuTime)/2])/1e3, "gpu-p50-us")
		})
	}
}
