package executor

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// affinePTX makes each word three times what it was, plus its second parameter, after a number of
// turns.
const affinePTX = ptxHeader + `
.visible .entry affine(.param .u64 p, .param .u64 c, .param .u64 turns)
{
	.reg .pred %p1;
	.reg .b32 %r<5>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r4, [c];
	ld.param.u64 %rd4, [turns];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.u32 %r1, %r1, 32, %r2;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r3, [%rd3];
L:
	add.s64 %rd4, %rd4, -1;
	setp.gt.s64 %p1, %rd4, 0;
	@%p1 bra L;
	mad.lo.u32 %r3, %r3, 3, %r4;
	st.global.u32 [%rd3], %r3;
	ret;
}
`

const (
	orderWords    = 64 // of a channel's array
	orderBytes    = 4 * orderWords
	orderCommands = 60 // of a channel, about
	orderBoxes    = 20 // arrays that it passes to other channels
	orderWindow   = 256 << 10
)

// sequence is a channel whose commands use one array of equal words. No two of them may be exchanged.
type sequence struct {
	*counting
	g      *guestEnd
	rng    *rand.Rand
	affine uint64
	forms  [3]uint64
	others []*sequence
	sent   int
	checks []func() // of the answers, in order; nil: there is nothing to check
	came   int
	said   strings.Builder
	// copies are arrays beside the first: boxes of them are passed on by the values of a triggered
	// event. window is where memory is copied to and from.
	copies, boxes, event uint64
	window               int
}

// send sends a command. check is called when it was answered.
func (q *sequence) send(what string, op abi.Opcode, p payload, more []byte, check func()) {
	q.g.send(abi.Header{Op: op}, p, more...)
	q.said.WriteString(what)
	q.checks = append(q.checks, check)
	q.sent++
}

// next sends one of the commands at random.
func (q *sequence) next() {
	v := q.rng.Uint32N(1000)
	switch q.rng.IntN(13) {
	case 0, 1, 2, 3:
		l, params := launchOf(q.affine, 32, q.mem, uint64(v), uint64(1+q.rng.IntN(300)*q.rng.IntN(10)))
		l.Grid[0] = orderWords / 32
		q.send("launch ", abi.OpLaunch, l, params, nil)
		q.want = 3*q.want + v
	case 4, 5, 6:
		i := q.rng.IntN(len(kernels))
		q.preemptible(q.g, q.forms[i], kernels[i], 1+q.rng.Uint32N(100))
		q.said.WriteString(kernels[i].Form.String() + " ")
		q.checks = append(q.checks, nil)
		q.sent++
	case 7:
		q.send("set ", abi.OpSet, abi.Set{Dst: q.mem, Value: v, Width: 4, Count: orderWords, Rows: 1}, nil, nil)
		q.want = v
	case 8:
		at := q.take()
		for i := range orderWords {
			binary.LittleEndian.PutUint32(q.g.r.shared[at+4*i:], v)
		}
		q.send("in ", abi.OpCopyIn, abi.Transfer{Dst: q.mem, Src: uint64(at), Size: orderBytes}, nil, nil)
		q.want = v
	case 9:
		q.pass()
	default:
		q.out(q.mem, q.want)
	}
}

// pass copies the array, and has another channel read the copy.
func (q *sequence) pass() {
	to := q.others[q.rng.IntN(len(q.others))]
	if q.boxes == orderBoxes || to == q || to.sent-to.came > 4 {
		return
	}
	box := q.copies + q.boxes*orderBytes
	q.boxes++
	q.send("copy ", abi.OpCopy, abi.Transfer{Dst: box, Src: q.mem, Size: orderBytes}, nil, nil)
	q.send("trigger ", abi.OpEventTrigger, abi.Point{Handle: q.event, Value: q.boxes}, nil, nil)
	to.send("await ", abi.OpEventAwait, abi.Point{Handle: q.event, Value: q.boxes}, nil, nil)
	to.out(box, q.want)
}

// out reads an array, whose words have to be want.
func (q *sequence) out(from uint64, want uint32) {
	at, n := q.take(), q.sent
	q.send("out ", abi.OpCopyOut, abi.Transfer{Dst: uint64(at), Src: from, Size: orderBytes}, nil, func() {
		for i := range orderWords {
			if got := binary.LittleEndian.Uint32(q.g.r.shared[at+4*i:]); got != want {
				q.g.r.t.Errorf("command %d reads %d in word %d, want %d: %s", n, got, i, want, q.said.String())
				return
			}
		}
	})
}

// take returns where in shared memory there is room for an array.
func (q *sequence) take() int {
	q.window += orderBytes
	return q.window - orderBytes
}

// receive takes the answers that there are.
func (q *sequence) receive() {
	for buf := make([]abi.Completion, 1); ; q.came++ {
		n, _, err := q.g.com.Fetch(buf)
		if err != nil {
			q.g.r.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if buf[0].Status != abi.StatusOK {
			q.g.r.t.Errorf("%v: %v (%s)", buf[0].Op, buf[0].Status, q.g.r.x.lastFault)
		}
		if check := q.checks[q.came]; check != nil {
			check()
		}
	}
}

// TestOrder has channels carry out random commands while the daemon says whatever it may say about
// launches, at any time, and slots are short. Each command finds what the one before it left.
func TestOrder(t *testing.T) {
	const seeds = 15
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			for seed := range uint64(seeds) {
				if testOrder(t, mode, seed); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func testOrder(t *testing.T, mode machine.Mode, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: mode}}, gpu.ContextOptions{})
	defer r.end()
	if rng.IntN(3) == 0 {
		r.x.o.FetchLimit = DeepFetchLimit
	}
	all := make([]*sequence, 1+rng.IntN(3))
	for i := range all {
		g := r.open()
		q := &sequence{counting: g.counting(orderWords), g: g, rng: rng, others: all, affine: g.load(affinePTX, "affine"), window: staging + 2<<20 + i*orderWindow}
		for i, k := range kernels {
			q.forms[i] = g.load(testdata(t, k.file), k.name)
		}
		q.copies = g.must(abi.OpMemAlloc, abi.Alloc{Size: orderBoxes * orderBytes}).Value[0]
		q.event = g.call(abi.Header{Op: abi.OpEventCreate, Aux: uint16(abi.EventTriggered)}, abi.Empty{}).Value[0]
		all[i] = q
	}
	d := &fickle{r: r, rng: rng, deadlines: mode == machine.Slices}
	sim := r.byKernel()
	var w proctest.Wait
	for left := true; left && !t.Failed(); {
		left = false
		for _, q := range all {
			if q.sent < orderCommands && q.sent-q.came < 6 && rng.IntN(3) == 0 {
				q.next()
			}
			q.receive()
			left = left || q.sent < orderCommands || q.came < q.sent
		}
		if err := w.Over(); err != nil {
			t.Fatalf("seed %d does not end: %v; %+v", seed, err, r.launches())
		}
		d.say()
		sim.Advance(time.Duration(rng.IntN(100)) * time.Microsecond)
		for range 1 + rng.IntN(4) {
			r.x.Step(d.suspended)
			runtime.Gosched()
		}
	}
}

// fickle is a daemon that changes its mind.
type fickle struct {
	r         *rig
	rng       *rand.Rand
	deadlines bool // launches that do not leave in time are taken off the GPU
	suspended bool
	others    []ipc.Claim // slots of another context
}

// launches calls f with some of the context's launches that have not ended.
func (d *fickle) launches(f func(s *ipc.LaunchSlot, v ipc.Launch)) {
	d.r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if v.Context == 0 && v.State != slotstate.Done && d.rng.IntN(2) == 0 {
			f(s, v)
		}
	})
}

// say says something, or nothing.
func (d *fickle) say() {
	rng, page, now := d.rng, d.r.page, d.r.x.o.Clock.Now()
	page.Beat(now)
	switch rng.IntN(14) {
	case 0:
		page.SetMode([]ipc.Mode{ipc.ModeFree, ipc.ModeByKernel, ipc.ModeByKernel, ipc.ModeAhead}[rng.IntN(4)])
	case 1, 2:
		page.SetTurn(ipc.Turn{Until: now + time.Duration(rng.IntN(3000))*time.Microsecond, Behind: rng.IntN(3) > 0})
	case 3:
		page.SetTurn(ipc.Turn{})
	case 4, 5, 6:
		d.launches(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
	case 7:
		deadline := time.Duration(0)
		if d.deadlines && rng.IntN(2) == 0 {
			deadline = now + time.Duration(rng.IntN(200))*time.Microsecond
		}
		d.launches(func(s *ipc.LaunchSlot, v ipc.Launch) {
			if v.Evictable {
				s.Evict(v.ID, []uint32{abi.EvictAll, 1}[rng.IntN(2)], now, deadline)
			}
		})
	case 8:
		d.launches(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Recall(v.ID) })
	case 9:
		d.launches(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Withdraw(v.ID) })
	case 10:
		for c, ok := page.Claim(1, &ipc.Launch{}); ok; c, ok = page.Claim(1, &ipc.Launch{}) {
			d.others = append(d.others, c)
		}
	case 11:
		for _, c := range d.others {
			c.Abandon(0)
		}
		d.others = nil
	case 12:
		d.suspended = rng.IntN(2) == 0
	case 13:
		for _, f := range d.r.x.functions.byID {
			f.mean = []time.Duration{0, 100 * time.Microsecond, 400 * time.Microsecond, time.Second}[rng.IntN(4)]
		}
	}
}
