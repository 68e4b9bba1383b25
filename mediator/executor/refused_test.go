package executor

import (
	"bytes"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// samplePTX is a kernel with an instruction that the soft GPU lacks, beside incPTX.
const samplePTX = incPTX + `
.visible .entry sample(.param .u64 t)
{
	.reg .f32 %f<5>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [t];
	mov.f32 %f1, 0f00000000;
	wgmma.fence.sync.aligned;
	ret;
}
`

// A module is loaded though the GPU can't execute one of its kernels. The log says which and why.
// Its launch fails; the channel and the other kernels go on.
func TestRefusedKernel(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	copy(r.shared[staging:], samplePTX)
	const log = staging + 1<<20
	load := func(room uint32) (module uint64, said string) {
		behind := r.shared[log+room : log+room+1<<10]
		copy(behind, bytes.Repeat([]byte{'#'}, len(behind)))
		c := g.must(abi.OpModuleLoad, abi.Module{Image: abi.Window{Offset: staging, Size: uint64(len(samplePTX))}, Log: log, LogBytes: room})
		if c.Value[1] > uint64(room) || bytes.Count(behind, []byte{'#'}) != len(behind) {
			t.Errorf("a log of %d bytes, with room for %d", c.Value[1], room)
		}
		return c.Value[0], string(r.shared[log : log+c.Value[1]])
	}
	if _, said := load(20); said != "" {
		t.Errorf("in 20 bytes: %q", said)
	}
	m, said := load(1 << 10)
	if !strings.HasPrefix(said, "kernel sample, PTX line ") || !strings.Contains(said, "wgmma.fence.sync.aligned: matrix instructions") || strings.Count(said, "\n") != 1 {
		t.Errorf("the log says %q", said)
	}
	find := func(name string) uint64 {
		return g.must(abi.OpFunction, abi.Lookup{Module: m, NameBytes: uint32(len(name))}, []byte(name)...).Value[0]
	}
	words := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	l, params := launchOf(find("sample"), 1, words)
	if c := g.call(abi.Header{Op: abi.OpLaunch}, l, params...); c.Status != abi.StatusNotSupported {
		t.Errorf("its launch: %v", c.Status)
	}
	l, params = launchOf(find("inc"), 32, words)
	g.must(abi.OpLaunch, l, params...)
	if len(r.faults) != 0 || len(r.failures) != 0 {
		t.Errorf("a refusal was taken for a failure: %v, %v", r.faults, r.failures)
	}
}
