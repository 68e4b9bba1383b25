package remote

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
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

// serve runs a server for the test. It returns the path of its socket and a function that stops it.
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

// double makes the GPU double n numbers several times, and checks them.
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
