package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/soft/vram"
)

// mallocPTX has a kernel that stores the address of n allocated bytes at its first parameter.
const mallocPTX = `
.version 7.0
.target sm_80
.address_size 64

.extern .func (.param .b64 out) malloc(.param .b64 n);

.visible .entry take(.param .u64 to, .param .u64 n)
{
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [to];
	ld.param.u64 %rd2, [n];
	{
		.param .b64 in;
		.param .b64 back;
		st.param.b64 [in], %rd2;
		call.uni (back), malloc, (in);
		ld.param.b64 %rd3, [back];
	}
	st.global.u64 [%rd1], %rd3;
	ret;
}
`

// TestHeap checks that kernels can allocate as much as the limit says, that the heap counts as the
// owner's memory, once it is needed, and that its size is fixed from then on.
func TestHeap(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	const heap = 3 << 20
	p := &purse{limit: 16 << 20}
	c, err := d.NewContext(t.Context(), gpu.ContextOptions{Budget: p})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := c.(gpu.Limited)
	if err := l.SetLimit(gpu.LimitHeap, heap); err != nil {
		t.Fatal(err)
	}
	before := p.taken
	m, err := c.LoadModule([]byte(mallocPTX))
	if err != nil {
		t.Fatal(err)
	}
	if more := p.taken - before; more < heap || more > heap+1<<20 {
		t.Errorf("a module that needs a heap of %d bytes took %d", heap, more)
	}
	if err := l.SetLimit(gpu.LimitHeap, heap+1<<20); !errors.Is(err, gpu.ErrInvalidLimit) {
		t.Errorf("grow the heap in use: %v", err)
	}
	f, err := m.Function("take")
	if err != nil {
		t.Fatal(err)
	}
	at, err := c.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	take := func(n uint64) uint64 {
		t.Helper()
		params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(at)), n)
		one := gpu.Dim3{X: 1, Y: 1, Z: 1}
		if _, err := ch.Launch(&gpu.Launch{Function: f, Grid: one, Block: one, Params: params}); err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		fence, err := ch.CopyOut(b[:], at)
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Wait(t.Context(), fence); err != nil {
			t.Fatal(err)
		}
		if err := ch.Outcome(fence).Err; err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	if take(heap+1) != 0 {
		t.Error("a kernel allocated more than the heap")
	}
	if first, second := take(heap/2), take(heap/4); first == 0 || second < first+heap/2 {
		t.Errorf("allocations at %#x and %#x", first, second)
	}
	if take(heap/2) != 0 {
		t.Error("allocations exceed the heap")
	}
	if err := c.Close(); err != nil || p.taken != 0 {
		t.Errorf("%d bytes are left, %v", p.taken, err)
	}
}

// TestPrintBuffer checks that the limit bounds what is kept of kernels' output, and that a larger
// buffer counts as the owner's memory.
func TestPrintBuffer(t *testing.T) {
	d := newDevice(t, Options{Priority: -1})
	p := &purse{limit: 8 << 20}
	c, err := d.NewContext(t.Context(), gpu.ContextOptions{Budget: p})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, print := c.(gpu.Limited), &c.(*deviceContext).cd.(*engineContext).print
	base := p.taken
	for _, x := range []struct{ set, taken uint64 }{{4 << 20, 3 << 20}, {2 << 20, 1 << 20}, {100 << 10, 0}} {
		if err := l.SetLimit(gpu.LimitPrintf, x.set); err != nil {
			t.Fatal(err)
		}
		if got := p.taken - base; got != x.taken {
			t.Errorf("a buffer of %d bytes takes %d more than the usual one, want %d", x.set, got, x.taken)
		}
	}
	if err := l.SetLimit(gpu.LimitPrintf, 32<<20); !errors.Is(err, gpu.ErrMemoryLimit) {
		t.Errorf("a buffer beyond the budget: %v", err)
	}
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 200 {
		if _, err := print.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	out, err := c.Printf(1 << 20)
	if want := bytes.Repeat(line, 100); err != nil || !bytes.Equal(out, want) {
		t.Errorf("%d bytes were kept, want %d: %v", len(out), len(want), err)
	}
}

// recursivePTX has a kernel that calls itself as deep as its parameter says, with a frame of 64
// bytes each.
const recursivePTX = `
.version 7.0
.target sm_80
.address_size 64

.func down(.param .b32 n)
{
	.local .align 8 .b8 frame[64];
	.reg .b32 %r<3>;
	.reg .pred %p1;
	ld.param.u32 %r1, [n];
	st.local.u32 [frame], %r1;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra END;
	sub.u32 %r2, %r1, 1;
	{
		.param .b32 in;
		st.param.b32 [in], %r2;
		call.uni down, (in);
	}
END:
	ret;
}

.visible .entry dive(.param .u32 n)
{
	.reg .b32 %r1;
	ld.param.u32 %r1, [n];
	{
		.param .b32 in;
		st.param.b32 [in], %r1;
		call.uni down, (in);
	}
	ret;
}
`

// TestStack checks that a kernel of unknown depth has as much stack as the limit said when its
// module was loaded.
func TestStack(t *testing.T) {
	d := newDevice(t, Options{Priority: -1, MemoryBytes: 512 << 20})
	for _, x := range []struct {
		stack uint64
		depth uint32
		ok    bool
	}{{1 << 10, 4, true}, {1 << 10, 100, false}, {16 << 10, 100, true}} {
		c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(gpu.Limited).SetLimit(gpu.LimitStack, x.stack); err != nil {
			t.Fatal(err)
		}
		m, err := c.LoadModule([]byte(recursivePTX))
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Function("dive")
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.NewChannel()
		if err != nil {
			t.Fatal(err)
		}
		one := gpu.Dim3{X: 1, Y: 1, Z: 1}
		fence, err := ch.Launch(&gpu.Launch{Function: f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint32(nil, x.depth)})
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Wait(t.Context(), fence); err != nil {
			t.Fatal(err)
		}
		err = ch.Outcome(fence).Err
		var fault *gpu.Fault
		if x.ok && err != nil || !x.ok && (!errors.As(err, &fault) || fault.Kind != gpu.FaultStack) {
			t.Errorf("%d calls on a stack of %d bytes: %v", x.depth, x.stack, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAttributesOfOptions checks that the attributes describe the GPU that was configured.
func TestAttributesOfOptions(t *testing.T) {
	d := newDevice(t, Options{Priority: -1, MemoryBytes: vram.Align << 16})
	a, err := d.Attributes()
	if err != nil {
		t.Fatal(err)
	}
	p := d.Properties()
	for i, want := range map[gpu.Attribute]int{
		gpu.MultiprocessorCount: p.SMs, gpu.MaxSharedPerBlockOptin: int(p.SharedPerBlockOptin), gpu.MaxBlocksPerMultiprocessor: p.BlocksPerSM,
		gpu.WarpSize: 32, gpu.ComputeCapabilityMajor: p.Major, gpu.L2CacheSize: int(p.L2Bytes), gpu.TotalConstantMemory: 64 << 10,
		gpu.ManagedMemory: 0, gpu.MaxTexture1DWidth: 131072, gpu.HostNUMAID: -1,
	} {
		if int(a[i]) != want {
			t.Errorf("attribute %d is %d, want %d", i, a[i], want)
		}
	}
}
