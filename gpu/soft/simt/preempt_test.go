package simt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
)

// eventKernel has a loop in which lanes diverge, a barrier, a sleep and an exchange, and stores what
// each lane has in the end. It uses many registers.
const eventKernel = `
.visible .entry event(.param .u64 event_param_0, .param .u32 event_param_1)
{
	.reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [event_param_0];
	ld.param.u32 %r1, [event_param_1];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %r2;
	mov.u32 %r4, 0;
LOOP:
	and.b32 %r5, %r3, 1;
	setp.eq.u32 %p1, %r5, 0;
	@%p1 bra EVEN;
	mad.lo.u32 %r3, %r3, 3, 1;
	bra MEET;
EVEN:
	shr.u32 %r3, %r3, 1;
MEET:
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p2, %r4, %r1;
	@%p2 bra LOOP;
	bar.sync 0;
	nanosleep.u32 20;
	shfl.sync.bfly.b32 %r6, %r3, 1, 31, -1;
	add.u32 %r7, %r6, %r3;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r7;
	ret;
}`

// eventResult is what eventKernel stores.
func eventResult(rounds int) (out [lanes]uint32) {
	var v [lanes]uint32
	for i := range v {
		v[i] = uint32(i)
		for range rounds {
			if v[i]&1 == 0 {
				v[i] /= 2
			} else {
				v[i] = 3*v[i] + 1
			}
		}
	}
	for i := range out {
		out[i] = v[i] + v[i^1]
	}
	return out
}

// disturber preempts warps at random.
type disturber struct {
	rng       *rand.Rand
	event     *Kernel
	out       uint64 // of the events, a slot each
	rounds    []int  // of each event
	borrowing int    // events that got their victims' registers
}

const eventSlots = 2048

// disturb has an event preempt a warp of a block that has begun.
func (d *disturber) disturb(t *testing.T, m *machine, b *Block) {
	if len(d.rounds) == eventSlots || b.live == 0 {
		return
	}
	n := d.rng.IntN(20) + 1
	g, err := NewGrid(Launch{Kernel: d.event, Grid: d3(1), Block: d3(32), Memory: m.mem, SMs: m.sms,
		Params: params(d.out+uint64(128*len(d.rounds)), n)})
	if err != nil {
		t.Fatal(err)
	}
	warp := d.rng.IntN(len(b.warps))
	switch err := b.Preempt(warp, d.rng.IntN(60), g); {
	case errors.Is(err, ErrNoEvent):
		return // it has one
	case err != nil:
		t.Fatal(err)
	}
	own, victims := b.warps[warp].watch.event.warps[0].bank(), b.warps[warp].bank()
	if victims.holds(&own) {
		d.borrowing++
	}
	d.rounds = append(d.rounds, n)
}

// launchWith is machine.launch, in small steps with d between them.
func (m *machine) launchWith(t *testing.T, l Launch, d *disturber) {
	l.Memory, l.SMs, l.Print = m.mem, m.sms, &m.out
	g, err := NewGrid(l)
	if err != nil {
		t.Fatal(err)
	}
	var resident []*Block
	nanos := uint64(1000)
	for steps := 0; !g.Done(); steps++ {
		if steps > 2_000_000 {
			t.Fatal("the kernel does not end")
		}
		for len(resident) < 2*m.sms {
			b := g.StartBlock(len(resident) % m.sms)
			if b == nil {
				break
			}
			resident = append(resident, b)
		}
		keep := resident[:0]
		for _, b := range resident {
			if d != nil && d.rng.IntN(2) == 0 {
				d.disturb(t, m, b)
			}
			r := b.Step(Now{Cycle: m.cycle, Nanos: nanos, CyclesPerUS: 1000}, 100)
			m.cycle += r.Cycles
			nanos += r.Cycles
			switch r.State {
			case Faulted:
				t.Fatal(r.Fault)
			case Running:
				keep = append(keep, b)
			case Sleeping:
				nanos = max(nanos, r.Wake)
				keep = append(keep, b)
			}
		}
		resident = keep
	}
}

// orderly are kernels whose results do not depend on the order in which warps execute. The others
// of the corpus are checked against their references alone.
func orderly(c *corpus.Case) bool {
	for i := range c.Buffers {
		if b := &c.Buffers[i]; b.Mode == corpus.Scratch || b.Within != (corpus.Tolerance{}) && c.Kernel != "matmul" {
			return false
		}
	}
	return true
}

// 10,000 events at random instructions of random warps of the whole corpus leave its results, bit
// for bit, as they are undisturbed, and have their own.
func TestPreemptedWarpsGoOn(t *testing.T) {
	want := 10_000
	if testing.Short() {
		want = 1_000
	}
	events, err := Load(t.Context(), parse(t, eventKernel), Options{})
	if err != nil {
		t.Fatal(err)
	}
	type prepared struct {
		module *Module
		c      *corpus.Case
		alone  map[string][]byte
	}
	var all []prepared
	for _, k := range corpus.All() {
		module, err := Load(t.Context(), parse(t, k.PTX(corpus.SM80)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := k.Case(corpus.Trivial, 1)
		m, launches := prepare(t, module, c)
		for _, l := range launches {
			m.launchWith(t, l, nil)
		}
		all = append(all, prepared{module, c, m.buffers})
	}
	done, borrowing, compared := 0, 0, 0
	for round := 0; done < want; round++ {
		for i := range all {
			p := &all[i]
			m, launches := prepare(t, p.module, p.c)
			d := &disturber{rng: rand.New(rand.NewPCG(uint64(round), uint64(i))), event: events.Kernel("event")}
			var out []byte
			d.out, out = m.alloc(128 * eventSlots)
			for _, l := range launches {
				m.launchWith(t, l, d)
			}
			for e, n := range d.rounds {
				for lane, v := range eventResult(n) {
					if got := binary.LittleEndian.Uint32(out[128*e+4*lane:]); got != v {
						t.Fatalf("%s, round %d: event %d, lane %d: %d, want %d", p.c.Kernel, round, e, lane, got, v)
					}
				}
			}
			if err := p.c.CheckAll(func(b *corpus.Buffer) ([]byte, error) { return m.buffers[b.Name], nil }); err != nil {
				t.Errorf("%s, round %d: %v", p.c.Kernel, round, err)
			}
			if orderly(p.c) {
				compared++
				for name, data := range m.buffers {
					if !bytes.Equal(data, p.alone[name]) {
						t.Errorf("%s, round %d: buffer %s differs from the undisturbed run's", p.c.Kernel, round, name)
					}
				}
			}
			done += len(d.rounds)
			borrowing += d.borrowing
		}
	}
	t.Logf("%d events, of which %d had their victims' registers; %d runs compared", done, borrowing, compared)
	if borrowing < done/4 {
		t.Errorf("%d of %d events had their victims' registers", borrowing, done)
	}
}

// A warp that waits at a barrier can be preempted, and then gets the barrier's result.
func TestPreemptedAtABarrier(t *testing.T) {
	m := newMachine(t, `
.visible .entry k(.param .u64 k_param_0)
{
	.reg .pred %p<3>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [k_param_0];
	mov.u32 %r1, %tid.x; mov.u32 %r5, 5; mov.u32 %r6, 6; mov.u32 %r7, 7; mov.u32 %r8, 8; mov.u32 %r9, 9; mov.u32 %r10, 10;
	setp.lt.u32 %p1, %r1, 40;
	bar.red.popc.u32 %r2, 0, %p1;
	add.u32 %r3, %r5, %r6; add.u32 %r3, %r3, %r7; add.u32 %r3, %r3, %r8; add.u32 %r3, %r3, %r9; add.u32 %r3, %r3, %r10;
	add.u32 %r2, %r2, %r3;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r2;
	ret;
}`+eventKernel)
	at, out := m.alloc(4 * 64)
	events, own := m.alloc(128)
	grid := func(kernel string, block int, args ...any) *Grid {
		g, err := NewGrid(Launch{Kernel: m.module.Kernel(kernel), Grid: d3(1), Block: d3(uint32(block)), Params: params(args...), Memory: m.mem, SMs: 1})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	b := grid("k", 64, at).StartBlock(0)
	for b.warps[0].state == warpReady {
		b.run(&b.warps[0], 1)
	}
	if err := b.Preempt(0, 0, grid("event", 32, events, 9)); err != nil {
		t.Fatal(err)
	}
	for i := uint64(0); ; i++ {
		r := b.Step(Now{Cycle: 100 * i, Nanos: 100 * i}, 7)
		if r.State == Finished {
			break
		}
		if r.Fault != nil || i > 1000 {
			t.Fatal(r)
		}
	}
	for i, v := range wordsOf(out) {
		if v != 40+45 {
			t.Errorf("thread %d: %d, want 85", i, v)
		}
	}
	for i, v := range eventResult(9) {
		if got := wordsOf(own)[i]; got != v {
			t.Errorf("event, lane %d: %d, want %d", i, got, v)
		}
	}
}

// TestPreemptRefuses: a block that is no event is refused, and an event's fault is the block's.
func TestPreemptRefuses(t *testing.T) {
	m := newMachine(t, eventKernel)
	at, _ := m.alloc(4 * 64)
	grid := func(blocks, threads uint32, shared uint64, out uint64) *Grid {
		g, err := NewGrid(Launch{Kernel: m.module.Kernel("event"), Grid: d3(blocks), Block: d3(threads), SharedBytes: shared,
			Params: params(out, 3), Memory: m.mem, SMs: 1})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	b := grid(1, 32, 0, at).StartBlock(0)
	started := grid(1, 32, 0, at)
	started.StartBlock(0)
	for name, err := range map[string]error{
		"two blocks": b.Preempt(0, 0, grid(2, 32, 0, at)), "two warps": b.Preempt(0, 0, grid(1, 33, 0, at)),
		"shared memory": b.Preempt(0, 0, grid(1, 32, 16, at)), "started": b.Preempt(0, 0, started),
		"no such warp": b.Preempt(1, 0, grid(1, 32, 0, at)), "before": b.Preempt(0, -1, grid(1, 32, 0, at)),
	} {
		if !errors.Is(err, ErrNoEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Preempt(0, 4, grid(1, 32, 0, 8)); err != nil {
		t.Fatal(err)
	}
	if err := b.Preempt(0, 0, grid(1, 32, 0, at)); !errors.Is(err, ErrNoEvent) {
		t.Errorf("a second event: %v", err)
	}
	var r Result
	for i := uint64(0); r.State != Faulted && r.State != Finished && i < 100; i++ {
		r = b.Step(Now{Nanos: 1000 * i}, 1000)
	}
	if r.State != Faulted || r.Fault.Kind != gpu.FaultAddress {
		t.Errorf("%+v", r)
	}
}
