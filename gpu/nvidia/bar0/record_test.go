package bar0_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting/nvreg"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
)

var recordFlag = flag.Bool("record", false, "record testdata/soft.trace anew, from a soft GPU")

// spin is a kernel that does nothing n times.
const spin = `
.version 7.0
.target sm_80
.address_size 64

.visible .entry spin(.param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	ld.param.u32 %r1, [n];
again:
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra again;
	ret;
}
`

// loads are the kernels of the recording's guests: so many, of so many rounds each, queued from the
// start, within a channel's capacity. Each lonely kernel runs after the one before has ended, when
// no other guest has work.
var loads = []struct {
	label          string
	rounds         uint32
	queued, lonely int
	milliseconds   int // of its time slices
}{
	{label: "long kernels", rounds: 2500, queued: 6, milliseconds: 2},
	{label: "short kernels", rounds: 300, queued: 40, milliseconds: 1},
	{label: "pauses", rounds: 600, queued: 5, lonely: 10, milliseconds: 2},
}

const (
	// polledWell bounds the part of a recording that lies in gaps between two polls of the
	// registers, and longestGap a single gap: a change and its reversal within a gap go unseen. A
	// poll takes about 50 ns; the soft GPU's own thread causes gaps.
	polledWell = 0.05
	longestGap = 500 * us
	// gap is the least time that counts as a gap.
	gap   = 20 * us
	tries = 200
)

// TestRecord records a soft GPU's registers if the flag is set. It discards a recording with gaps
// caused by the host's load, whatever its contents.
func TestRecord(t *testing.T) {
	if !*recordFlag {
		t.Skip("the trace is there: -record makes it anew")
	}
	for range tries {
		r, busy, err := record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		part := float64(r.gaps) / float64(r.length)
		t.Logf("%d polls, %v in gaps of %v, the longest %v", r.looks, r.gaps, r.length, r.longest)
		if part > polledWell || r.longest > longestGap {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "# Recorded from the register page of a soft GPU, not from hardware (README.md): %d looks,\n", r.looks)
		fmt.Fprintf(&b, "# %.2f %% of the time in gaps of more than %v between two, the longest %v.\n", 100*part, gap, r.longest)
		b.WriteString(r.b.String())
		b.WriteString(busy)
		if err := os.WriteFile("testdata/soft.trace", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("in none of %d recordings were the registers looked at without a break: this host is too busy", tries)
}

// record runs the loads on a soft GPU and polls its registers meanwhile. busy is the GPU's own
// accounting, as lines of a trace.
func record(ctx context.Context) (_ *recorder, busy string, err error) {
	d, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Machine: machine.Config{Mode: machine.Slices}})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	guests := make([]*guest, len(loads))
	for i := range loads {
		if guests[i], err = newGuest(ctx, d, i); err != nil {
			return nil, "", err
		}
	}
	r, err := newRecorder(d)
	if err != nil {
		return nil, "", err
	}
	work := func() error {
		for _, g := range guests {
			if err := d.Resume(g.ctx); err != nil {
				return err
			}
		}
		for _, g := range guests {
			if err := g.ch.Wait(ctx, g.last); err != nil {
				return err
			}
		}
		for i, g := range guests {
			for range loads[i].lonely {
				if err := g.launch(loads[i].rounds); err != nil {
					return err
				}
				if err := g.ch.Wait(ctx, g.last); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = errors.Join(r.while(work), unix.Munmap(r.mem))
	counts, cerr := d.Counts()
	if err := errors.Join(err, cerr); err != nil {
		return nil, "", err
	}
	for i, g := range guests {
		busy += fmt.Sprintf("busy %d %d\n", g.ctx.Group(), counts.Busy[loads[i].label].Nanoseconds())
	}
	return r, busy, nil
}

// guest is one of the recording's guests.
type guest struct {
	ctx  gpu.Context
	f    gpu.Function
	ch   gpu.Channel
	last gpu.Fence
}

// newGuest makes a suspended context and queues its load.
func newGuest(ctx context.Context, d *soft.Device, i int) (*guest, error) {
	l := loads[i]
	c, err := d.NewContext(ctx, gpu.ContextOptions{Label: l.label})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.Suspend(c), d.SetTimeslice(c, time.Duration(l.milliseconds)*time.Millisecond)); err != nil {
		return nil, err
	}
	g := &guest{ctx: c}
	m, err := c.LoadModule([]byte(spin))
	if err != nil {
		return nil, err
	}
	if g.f, err = m.Function("spin"); err != nil {
		return nil, err
	}
	if g.ch, err = c.NewChannel(); err != nil {
		return nil, err
	}
	for range l.queued {
		if err := g.launch(l.rounds); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *guest) launch(rounds uint32) (err error) {
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	g.last, err = g.ch.Launch(&gpu.Launch{Function: g.f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint32(nil, rounds)})
	return err
}

// recorder polls the registers that accounting reads, and records changes.
type recorder struct {
	mem   []byte
	space nvreg.Space
	list  nvreg.Runlist
	begun time.Duration
	seen  map[uint32]uint32
	b     strings.Builder

	looks                 int
	length, gaps, longest time.Duration
}

func newRecorder(d *soft.Device) (*recorder, error) {
	f, err := d.RegisterFile()
	if err != nil {
		return nil, err
	}
	r := &recorder{seen: make(map[uint32]uint32)}
	r.mem, r.space, err = soft.MapRegisters(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if r.list, err = nvreg.FindGraphics(r.space); err != nil {
		return nil, errors.Join(err, unix.Munmap(r.mem))
	}
	return r, nil
}

// while records until work has returned. It needs a processor of its own.
func (r *recorder) while(work func() error) error {
	var over atomic.Bool
	recorded := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(recorded)
		runtime.LockOSThread() // it ends with its priority
		// Below the soft GPU's own thread. Without permission there are gaps.
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}, 0)
		r.begin()
		close(started)
		for last := r.begun; !over.Load(); {
			now := clock.Real{}.Now()
			if d := now - last; d > gap {
				r.gaps += d
				r.longest = max(r.longest, d)
			}
			last = now
			r.look(now)
		}
		r.length = clock.Real{}.Now() - r.begun
		fmt.Fprintf(&r.b, "%d %06x %08x\n", r.length.Nanoseconds(), r.list.StatusOffset(), uint32(r.list.Status(r.space)))
	}()
	<-started
	err := work()
	over.Store(true)
	<-recorded
	return err
}

// begin records the constant registers, and the initial values of the others.
func (r *recorder) begin() {
	r.begun = clock.Real{}.Now()
	r.note(0, pmcBoot0)
	r.note(0, ptopCfg)
	for i := range r.space.Load(ptopCfg) >> 20 { // rows of the device table
		r.note(0, ptopRow+4*i)
	}
	r.note(0, r.list.Base+nvreg.RunlistChannelConfig)
	r.changed(0)
}

// look records a changed status.
func (r *recorder) look(now time.Duration) {
	r.looks++
	if uint32(r.list.Status(r.space)) != r.seen[r.list.StatusOffset()] {
		r.changed(now - r.begun)
	}
}

// changed records the changing registers, the status last as the soft GPU writes it.
func (r *recorder) changed(at time.Duration) {
	r.note(at, nvreg.PTimerTime1)
	r.note(at, nvreg.PTimerTime0)
	r.note(at, r.list.ChannelOffset())
	if id, on := r.list.Channel(r.space).ID(); on {
		r.note(at, r.list.EntryOffset(id))
	}
	r.note(at, r.list.StatusOffset())
}

// note writes down a register with a new value.
func (r *recorder) note(at time.Duration, off uint32) {
	v := r.space.Load(off)
	if was, ok := r.seen[off]; ok && was == v {
		return
	}
	r.seen[off] = v
	fmt.Fprintf(&r.b, "%d %06x %08x\n", at.Nanoseconds(), off, v)
}
