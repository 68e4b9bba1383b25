package system

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/cmd/vgpud/workload/card"
	"vgpud/e2e/host"
	"vgpud/gpu/eventtable"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestEventsBadInput: rings on numbers of no kernel, without a free entry and after unregistering are
// counted; those, words of the area that are overwritten while its kernels are polled for, and rings
// during a reset harm their guest alone.
func TestEventsBadInput(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest"})
	guest := newPinger(t, dev)
	area, err := dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	for n := range abi.MaxEventDoorbells {
		if err := dev.KickEvents(n); err != nil {
			t.Fatal(err)
		}
	}
	for n := range abi.MaxEventKernels {
		abi.AddWord(area, abi.EventPage(n)+abi.EventDoorbellWord, 1000)
	}
	card.KickHost(area)
	by.goesOn()
	h.Until("rings that are counted", func() error {
		n, err := guest.other.Counts(ctx)
		if err == nil && n.Dropped == 0 {
			err = fmt.Errorf("counts %+v", n)
		}
		return err
	})
	if err := guest.other.Close(ctx); err != nil {
		t.Fatal(err)
	}
	abi.AddWord(area, abi.EventPage(guest.other.Number())+abi.EventDoorbellWord, 7)
	again, err := card.Register(ctx, guest.gpu)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := again.Counts(ctx); err != nil || again.Number() != guest.other.Number() || n.Stray < 7 {
		t.Errorf("event kernel %d after stray rings: %+v, %v", again.Number(), n, err)
	}
	for round := range uint32(100) {
		for off := abi.EventPage(0); off < abi.EventAreaBytes; off += 4 * 61 {
			abi.StoreWord(area, off, round*0x9e3779b9)
		}
		card.KickHost(area)
	}
	by.goesOn()
	ended, rings := make(chan struct{}), sync.WaitGroup{}
	rings.Go(func() {
		for i := uint32(0); ; i++ {
			for n := range abi.MaxEventKernels {
				abi.AddWord(area, abi.EventPage(n)+abi.EventDoorbellWord, i)
			}
			card.KickHost(area)
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	err = guest.gpu.Reset(ctx)
	close(ended)
	rings.Wait()
	if err != nil {
		t.Fatal(err)
	}
	guest.register()
	guest.pings(20)
	by.goesOn()
}

// badEvents are event kernels that misbehave, beside [badKernels].
const badEvents = `.version 8.0
.target sm_80
.address_size 64
.visible .entry stop()
{
	trap;
	ret;
}
// leave has each odd thread exit at once, and the others after a store, in the middle of a loop.
.visible .entry leave(.param .u64 at)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<4>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [at];
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 1;
	setp.ne.u32 %p1, %r2, 0;
	@%p1 exit;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
L:
	st.global.u32 [%rd3], %r1;
	setp.ne.u32 %p1, %r1, 0xffffffff;
	@%p1 exit;
	bra L;
}
// scribble stores a word over all words of the event area.
.visible .entry scribble(.param .u64 area, .param .u32 word, .param .u32 words)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<4>;
	.reg .b32 %r<7>;
	ld.param.u64 %rd1, [area];
	ld.param.u32 %r1, [word];
	ld.param.u32 %r2, [words];
	mov.u32 %r3, %tid.x;
	mov.u32 %r4, %ntid.x;
L:
	mul.wide.u32 %rd2, %r3, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r1;
	add.u32 %r3, %r3, %r4;
	setp.lt.u32 %p1, %r3, %r2;
	@%p1 bra L;
	ret;
}
`

// greedyKernel returns a kernel that needs more than 64 registers, so that no SM has enough for 1,024
// threads of it.
func greedyKernel() string {
	const values = 100
	var b strings.Builder
	fmt.Fprintf(&b, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry greedy(.param .u64 at)\n{\n\t.reg .b64 %%rd<2>;\n\t.reg .b32 %%r<%d>;\n\tld.param.u64 %%rd1, [at];\n", values+1)
	for i := range values {
		fmt.Fprintf(&b, "\tld.global.u32 %%r%d, [%%rd1+%d];\n", i, 4*i)
	}
	for i := range values {
		fmt.Fprintf(&b, "\tst.global.u32 [%%rd1+%d], %%r%d;\n", 4*i, values-1-i)
	}
	return b.String() + "\tret;\n}\n"
}

// badGuest is a guest whose event kernels misbehave.
type badGuest struct {
	t   *testing.T
	h   *host.Host
	dev *driver.Device
	gpu *driver.Context
}

// register registers a kernel of one block.
func (g *badGuest) register(ptx, name string, threads uint32, args ...any) (*driver.EventKernel, error) {
	g.t.Helper()
	f := function(g.t, g.gpu, ptx, name)
	params, err := f.AppendParams(nil, args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.gpu.RegisterEventKernel(g.t.Context(), &driver.Launch{Function: f, Block: driver.Dim{X: threads}, Params: params}, 4)
}

// fire launches an event.
func (g *badGuest) fire(k *driver.EventKernel) {
	g.t.Helper()
	if _, ok := k.Queue().Free(); !ok {
		g.t.Fatal("no free entry")
	}
	if err := k.Launch(); err != nil {
		g.t.Fatal(err)
	}
}

// TestBadEventKernels: event kernels that trap, store elsewhere, never end, exit early, need more of an
// SM than there is, and write over their own guest's queues, flags, rows and doorbells. A kernel that
// faults ends its context, is counted and named; the others do that guest no harm, or only what it did
// to itself. A neighbour goes on, and after a reset so does the guest.
func TestBadEventKernels(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	dev := h.NewGuest(api.VMSpec{Name: "guest", KernelTimeLimit: time.Second})
	g := &badGuest{t, h, dev, contextOf(t, dev)}
	reset := func() {
		t.Helper()
		by.goesOn()
		if err := g.gpu.Reset(ctx); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		ptx, kernel string
		args        []any
		want        abi.Status
	}{
		{badEvents, "stop", nil, abi.StatusTrap},
		{badKernels, "poke", []any{driver.Ptr(0xdead_0000_1230)}, abi.StatusIllegalAddress},
		{badKernels, "endless", nil, abi.StatusTimeLimit},
	} {
		before := h.VM("guest").Errors
		k, err := g.register(c.ptx, c.kernel, 32, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		g.fire(k)
		h.Until("the fault of "+c.kernel, func() error {
			if _, err := g.gpu.Alloc(ctx, 64); !errors.Is(err, c.want) {
				return fmt.Errorf("alloc: %v, want %v", err, c.want)
			}
			return nil
		})
		if s := k.Queue().State(); s != abi.EventFailed {
			t.Errorf("%s faults, and is %v", c.kernel, s)
		}
		if text := g.gpu.Fault(ctx); !strings.Contains(text, c.kernel) {
			t.Errorf("the fault of %s: %q", c.kernel, text)
		}
		h.Until("the error of "+c.kernel+", as an operator sees it", func() error {
			if n := h.VM("guest").Errors; n <= before {
				return fmt.Errorf("%d errors, and %d before", n, before)
			}
			return nil
		})
		reset()
	}

	t.Log("exits")
	out, err := g.gpu.Alloc(ctx, 4*64)
	if err != nil {
		t.Fatal(err)
	}
	leave, err := g.register(badEvents, "leave", 64, out)
	if err != nil {
		t.Fatal(err)
	}
	g.fire(leave)
	h.Until("the end of an event that exits", func() error {
		if n, err := leave.Counts(ctx); err != nil || n.Ended != 1 {
			return fmt.Errorf("counts %+v, %v", n, err)
		}
		return nil
	})
	got := make([]byte, 4*64)
	if err := g.gpu.CopyOut(ctx, got, out); err != nil {
		t.Fatal(err)
	}
	for i := uint32(0); i < 64; i += 2 {
		if v := binary.LittleEndian.Uint32(got[4*i:]); v != i {
			t.Errorf("thread %d stored %d before it left", i, v)
		}
	}
	if err := leave.Close(ctx); err != nil {
		t.Fatal(err)
	}

	t.Log("needs too much")
	for range eventtable.Rows + 1 { // a refusal that kept a row or a number would be noticed
		if _, err := g.register(greedyKernel(), "greedy", 1024, out); !errors.Is(err, abi.StatusLaunchResources) {
			t.Fatalf("1,024 threads that need more registers than an SM has: %v", err)
		}
		if _, err := g.register(badEvents, "leave", 2048, out); err == nil {
			t.Fatal("a block of 2,048 threads is registered")
		}
	}

	t.Log("writes over the area")
	area, err := dev.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []uint32{0xffff_ffff, uint32(abi.EventBusy), 0} {
		k, err := g.register(badEvents, "scribble", 1024, driver.Ptr(0), word, uint32(abi.EventAreaBytes/4))
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(k.Queue().Params(0), uint64(k.Area()))
		g.fire(k)
		h.Until("the area is written over", func() error {
			if v := abi.LoadWord(area, abi.EventAreaBytes-4); v != word {
				return fmt.Errorf("its last word is %#x", v)
			}
			return nil
		})
		card.KickHost(area)
		if word == 0xffff_ffff { // no entry is busy, and so nothing is launched that might fault
			h.Until("rings that are counted", func() error {
				if n, err := k.Counts(ctx); err != nil || n.Dropped == 0 {
					return fmt.Errorf("counts %+v, %v", n, err)
				}
				return nil
			})
		}
		reset()
	}
	guest := newPinger(t, dev)
	guest.pings(20)
	by.goesOn()
}
