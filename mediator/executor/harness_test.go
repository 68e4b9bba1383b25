package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/memfd"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

const (
	testChannels = 4
	ringEntries  = abi.MinRingEntries
	testRings    = 512 << 10 // of shared memory behind the header
	staging      = 1 << 20   // where staging begins in shared memory
	sharedBytes  = 4 << 20
)

// rig is an executor on a soft GPU of its own, with the guest's ends of its channels. It runs only
// when the test steps it.
type rig struct {
	t        testing.TB
	x        *Executor
	ctx      gpu.Context
	page     *ipc.ControlPage
	shared   []byte
	header   int
	rings    int
	guests   []*guestEnd
	faults   []ipc.Fault
	failures []ipc.ChannelFailure
	options  Options
	wants    bool   // whether the context had commands when it was saved last
	end      func() // ends the executor and its GPU, once
}

// guestEnd is the guest's end of a channel.
type guestEnd struct {
	r   *rig
	sub *abi.SubmissionWriter
	com *abi.CompletionReader
	n   uint64 // cookies
}

func newRig(t testing.TB, o gpu.ContextOptions) *rig {
	t.Helper()
	return newRigOn(t, testGPU, o)
}

// testGPU is a rig's GPU. The kernels of slowGPU take 25 times as long, so that one is still there when
// a test looks that had to wait for a processor.
var (
	testGPU = soft.Options{MemoryBytes: 64 << 20, Priority: -1}
	slowGPU = soft.Options{MemoryBytes: 64 << 20, Priority: -1, WarpTime: 5 * time.Microsecond}
)

// newRigOn is newRig on a GPU with other options.
func newRigOn(t testing.TB, so soft.Options, o gpu.ContextOptions) *rig {
	t.Helper()
	return newRigIn(t, so, o, func(c gpu.Context) gpu.Context { return c })
}

// newRigIn is newRigOn in a context that wrap returns.
func newRigIn(t testing.TB, so soft.Options, o gpu.ContextOptions, wrap func(gpu.Context) gpu.Context) *rig {
	t.Helper()
	dev, err := soft.NewLocal(so)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := dev.NewContext(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx = wrap(ctx)
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	file, shared := newShared(t, sharedBytes)
	events, area := newShared(t, abi.EventAreaBytes)
	r := &rig{t: t, ctx: ctx, page: page, shared: shared, header: abi.HeaderBytes(testChannels), rings: testRings}
	r.options = Options{
		SharedFile: file, Mappable: shared[r.header+r.rings:], EventFile: events, Events: area,
		Device: dev, Context: ctx, Shared: r.shared, Windows: r.header + r.rings, Page: page, Slot: 0, Clock: clock.Real{}, KernelTimeLimit: o.KernelTimeLimit,
		Fault:         func(f ipc.Fault) { r.faults = append(r.faults, f) },
		ChannelFailed: func(f ipc.ChannelFailure) { r.failures = append(r.failures, f) },
	}
	r.start()
	t.Cleanup(func() {
		r.end()
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts an executor with the rig's options.
func (r *rig) start() {
	x, ctx, dev := New(r.options), r.options.Context, r.options.Device
	r.x, r.ctx = x, ctx
	r.end = sync.OnceFunc(func() {
		if err := errors.Join(x.Close(), ctx.Close(), dev.Close()); err != nil {
			r.t.Error(err)
		}
	})
}

// newShared returns a region's memory, and the file that it is mapped from.
func newShared(t testing.TB, bytes int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("BAR", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "BAR")
	if err := f.Truncate(int64(bytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), unix.Munmap(mem)); err != nil {
			t.Error(err)
		}
	})
	return f, mem
}

// open opens the next channel.
func (r *rig) open() *guestEnd {
	r.t.Helper()
	i := len(r.guests)
	ring := abi.RingBytes(ringEntries)
	sub := uint64(r.header + 2*i*ring)
	com := sub + uint64(ring)
	words := abi.ChannelPage(i)
	abi.ResetChannelPage(r.shared[words : words+abi.PageSize])
	var err error
	r.x.Open(ipc.Channel{
		Index: i, Words: uint64(words), Vector: -1,
		SubmissionOffset: sub, SubmissionCount: ringEntries, CompletionOffset: com, CompletionCount: ringEntries,
	}, func(e error) { err = e })
	r.x.Step(false)
	if err != nil {
		r.t.Fatal(err)
	}
	g := &guestEnd{r: r}
	page := r.shared[words : words+abi.PageSize]
	if g.sub, err = abi.NewSubmissionWriter(page, r.shared[sub:sub+ringEntries*abi.EntrySize]); err != nil {
		r.t.Fatal(err)
	}
	if g.com, err = abi.NewCompletionReader(page, r.shared[com:com+ringEntries*abi.EntrySize]); err != nil {
		r.t.Fatal(err)
	}
	r.guests = append(r.guests, g)
	return g
}

// payload is one of abi's command payloads.
type payload interface{ Encode(*abi.Entry) }

// send submits a command, with its continuation data.
func (g *guestEnd) send(h abi.Header, p payload, more ...byte) {
	g.r.t.Helper()
	g.n++
	h.Cookie, h.More = g.n, uint8(abi.MoreFor(len(more)))
	if !g.sub.Reserve(1 + int(h.More)) {
		g.r.t.Fatal("the ring is full")
	}
	e := g.sub.Next()
	p.Encode(e)
	h.Encode(e)
	for len(more) > 0 {
		more = more[copy(g.sub.Next()[:], more):]
	}
	g.sub.Publish()
}

// receive steps the executor until n completions have come.
func (g *guestEnd) receive(n int) []abi.Completion {
	g.r.t.Helper()
	got := make([]abi.Completion, 0, n)
	buf := make([]abi.Completion, 1)
	for len(got) < n {
		k, _, err := g.com.Fetch(buf)
		if err != nil {
			g.r.t.Fatal(err)
		}
		if got = append(got, buf[:k]...); k == 0 {
			g.r.x.Step(false)
			runtime.Gosched()
		}
	}
	return got
}

// call sends a command and returns its completion.
func (g *guestEnd) call(h abi.Header, p payload, more ...byte) abi.Completion {
	g.r.t.Helper()
	g.send(h, p, more...)
	c := g.receive(1)[0]
	if c.Cookie != g.n || c.Op != h.Op {
		g.r.t.Fatalf("answer to cookie %d, %v, is %+v", g.n, h.Op, c)
	}
	return c
}

// must is call for a command that must succeed.
func (g *guestEnd) must(op abi.Opcode, p payload, more ...byte) abi.Completion {
	g.r.t.Helper()
	c := g.call(abi.Header{Op: op}, p, more...)
	if c.Status != abi.StatusOK {
		g.r.t.Fatalf("%v: %v (%s)", op, c.Status, g.r.x.lastFault)
	}
	return c
}

// load loads a module and finds a function in it.
func (g *guestEnd) load(ptx, name string) uint64 {
	g.r.t.Helper()
	copy(g.r.shared[staging:], ptx)
	const log = staging + 1<<20
	c := g.call(abi.Header{Op: abi.OpModuleLoad}, abi.Module{
		Image: abi.Window{Offset: staging, Size: uint64(len(ptx))}, Log: log, LogBytes: 1 << 10,
	})
	if c.Status != abi.StatusOK {
		g.r.t.Fatalf("load: %v: %s", c.Status, g.r.shared[log:log+c.Value[1]])
	}
	return g.must(abi.OpFunction, abi.Lookup{Module: c.Value[0], NameBytes: uint32(len(name))}, []byte(name)...).Value[0]
}

// launchOf returns a launch of one block with 64-bit parameters.
func launchOf(fn uint64, threads uint32, params ...uint64) (abi.Launch, []byte) {
	var b []byte
	for _, p := range params {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	return abi.Launch{
		Function: fn, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1}, ParamBytes: uint32(len(b)),
	}, b
}

// header of all test modules.
const ptxHeader = ".version 8.0\n.target sm_80\n.address_size 64\n"

// incPTX adds one to each of the first 32 words at its parameter.
const incPTX = ptxHeader + `
.visible .entry inc(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	add.s32 %r2, %r2, 1;
	st.global.u32 [%rd3], %r2;
	ret;
}
`

// spinPTX counts down from its parameter.
const spinPTX = ptxHeader + `
.visible .entry spin(.param .u64 n)
{
	.reg .pred %p1;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [n];
L:
	add.s64 %rd1, %rd1, -1;
	setp.ne.s64 %p1, %rd1, 0;
	@%p1 bra L;
	ret;
}
`

func (r *rig) stepUntil(what string, done func() bool) {
	r.t.Helper()
	var w proctest.Wait
	for !done() {
		if err := w.Over(); err != nil {
			r.t.Fatalf("never: %s (%v)", what, err)
		}
		r.x.Step(false)
		runtime.Gosched()
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
