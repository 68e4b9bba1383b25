package soft

import (
	"errors"
	"strings"
	"testing"

	"vgpud/gpu"
)

// A module with a kernel that uses an instruction which the GPU lacks can be loaded. Launching that
// kernel fails with an error that names it and the instruction; the module's other kernels work.
func TestRefusedKernelAlone(t *testing.T) {
	d := newDevice(t, Options{})
	r := newRig(t, d, gpu.ContextOptions{})
	var err error
	r.m, err = r.ctx.LoadModule([]byte(source + `
.visible .entry sample(.param .u64 t)
{
	.reg .f32 %f<5>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [t];
	mov.f32 %f1, 0f00000000;
	wgmma.fence.sync.aligned;
	ret;
}`))
	if err != nil {
		t.Fatal(err)
	}
	names := func(err error) bool {
		return errors.Is(err, gpu.ErrUnsupported) && strings.Contains(err.Error(), "kernel sample, PTX line ") &&
			strings.Contains(err.Error(), "wgmma.fence.sync.aligned: matrix instructions")
	}
	if all := r.m.(gpu.Partial).Refused(); len(all) != 1 || !names(all[0]) {
		t.Errorf("refused: %v", all)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	if _, err := r.ch.Launch(&gpu.Launch{Function: r.function("sample"), Grid: one, Block: one, Params: make([]byte, 8)}); !names(err) {
		t.Errorf("launch: %v", err)
	}
	p := r.alloc(4)
	if o := r.wait(r.launch("store", 1, 1, p)); o.Err != nil {
		t.Errorf("the kernel beside it: %v", o.Err)
	}
	if n, err := r.function("sample").Occupancy(32, 0); n < 1 || err != nil {
		t.Errorf("occupancy of a refused kernel: %d, %v", n, err)
	}
}

// The GPU also refuses such a launch if a program puts it into the ring unchecked.
func TestRefusedKernelInTheRing(t *testing.T) {
	d := newDevice(t, Options{})
	r := newRig(t, d, gpu.ContextOptions{})
	m, err := r.ctx.LoadModule([]byte(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry sample() { .reg .b32 %r<5>; wgmma.fence.sync.aligned; ret; }"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("sample")
	if err != nil {
		t.Fatal(err)
	}
	f.(*function).refused = ""
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	if o := r.wait(r.must(r.ch.Launch(&gpu.Launch{Function: f, Grid: one, Block: one}))); !errors.Is(o.Err, gpu.ErrUnsupported) {
		t.Errorf("launched: %v", o.Err)
	}
}
