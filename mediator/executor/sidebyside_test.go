package executor

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// TestCountedTimes: whatever the order in which launches end, each instant at which one was on the
// GPU is counted once.
func TestCountedTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const span = 60
		var c countedTimes
		var counted [span]int
		var ran [span]bool
		for range rapid.IntRange(1, 12).Draw(t, "launches") {
			start := rapid.IntRange(0, span-1).Draw(t, "start")
			end := rapid.IntRange(start, span-1).Draw(t, "end")
			for i := start; i < end; i++ {
				ran[i] = true
			}
			for _, p := range c.add(time.Duration(start), time.Duration(end)) {
				for i := p.from; i < p.to; i++ {
					counted[i]++
				}
			}
		}
		for i, n := range counted {
			if n > 1 || (n == 1) != ran[i] {
				t.Fatalf("instant %d is counted %d times, a launch ran: %v", i, n, ran[i])
			}
		}
		if !slices.IsSortedFunc(c.intervals, func(a, b interval) int { return int(a.to - b.from) }) {
			t.Fatalf("intervals %v", c.intervals)
		}
	})
}

// sideBySide is a fake GPU on which kernels of a context run side by side.
type sideBySide struct{ fakeGPU }

func (sideBySide) Properties() gpu.Properties {
	p := fakeGPU{}.Properties()
	p.SideBySide = true
	return p
}

// TestKernelsOfAContextSideBySide: long launches of a context's channels go side by side while the
// SMs have room for all of their blocks. Behind one in its channel, or in another context, a launch
// waits.
func TestKernelsOfAContextSideBySide(t *testing.T) {
	c := newManyContexts(t, 2, 1)
	for i, m := range c.all {
		m.ends, m.guests = nil, nil
		m.x = New(Options{
			Device: sideBySide{}, Context: m.ctx, Shared: m.shared, Windows: m.header + m.rings, Page: c.page, Slot: i, Clock: &c.sim,
			KernelTimeLimit: time.Second,
		})
		for range testChannels {
			m.ends = append(m.ends, m.open())
		}
		m.fn = m.ends[0].load("fake", "plain")
	}
	first, second := c.all[0], c.all[1]
	f, err := first.x.functions.get(first.fn)
	if err != nil {
		t.Fatal(err)
	}
	perSM, err := f.resident(32, 0)
	if err != nil {
		t.Fatal(err)
	}
	launch := func(m *member, channel int, blocks uint32) {
		l, params := launchOf(m.fn, 32, 0)
		l.Grid[0] = blocks
		m.ends[channel].send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	expect := func(want ...uint64) {
		t.Helper()
		c.step(false)
		var got []uint64
		for _, m := range c.all {
			var n uint64
			for _, ch := range m.ctx.channels {
				n += uint64(ch.sent - ch.done)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d launches are on the GPU, want %d", got, want)
		}
	}
	sms := uint32(first.x.props.SMs)
	launch(first, 0, 1)
	launch(first, 0, 1) // behind it
	launch(first, 1, 1)
	expect(2, 0)
	launch(second, 0, 1) // of another context
	expect(2, 0)
	whole := sms * uint32(perSM)
	launch(first, 2, whole) // too large
	expect(2, 0)
	c.let()
	c.step(false)
	for range 8 { // all have their turn
		c.let()
		c.step(false)
	}
	for i, want := range []uint64{4, 1} {
		if n := c.page.Context(i).Counters().Kernels; n != want || c.all[i].x.admission.occupied != 0 {
			t.Errorf("context %d: %d kernels, want %d; %d is occupied", i, n, want, c.all[i].x.admission.occupied)
		}
	}
}

// meetPTX stores to one word and waits for another.
const meetPTX = ptxHeader + `
.visible .entry meet(.param .u64 mine, .param .u64 other)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<3>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [mine];
	ld.param.u64 %rd2, [other];
	mov.u32 %r1, 1;
	st.volatile.global.u32 [%rd1], %r1;
more:
	ld.volatile.global.u32 %r2, [%rd2];
	setp.eq.u32 %p1, %r2, 0;
	@%p1 bra more;
	ret;
}
`

// TestKernelsMeet: kernels in two channels that wait for each other both end, though neither is
// known to be short.
func TestKernelsMeet(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	fn := a.load(meetPTX, "meet")
	p := a.must(abi.OpMemAlloc, abi.Alloc{Size: 8}).Value[0]
	l, params := launchOf(fn, 32, p, p+4)
	a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	l, params = launchOf(fn, 32, p+4, p)
	b.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	for _, g := range r.guests {
		if got := g.receive(1)[0]; got.Status != abi.StatusOK {
			t.Errorf("it ended with %+v", got)
		}
	}
	slot := r.page.Context(0)
	if c := slot.Counters(); c.Kernels != 2 || slot.Outstanding() != 0 {
		t.Errorf("%+v, %d outstanding", c, slot.Outstanding())
	}
}
