package preempt

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// slowPTX has a kernel whose blocks take a given number of nanoseconds, and count themselves.
const slowPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry slow(.param .u64 counts, .param .u64 ns) {
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	.reg .pred %p;
	ld.param.u64 %rd1, [counts];
	ld.param.u64 %rd2, [ns];
	mov.u64 %rd3, %globaltimer;
loop:
	mov.u64 %rd4, %globaltimer;
	sub.u64 %rd5, %rd4, %rd3;
	setp.lt.u64 %p, %rd5, %rd2;
	@%p bra loop;
	mov.u32 %r1, %ctaid.x;
	mul.wide.u32 %rd6, %r1, 4;
	add.u64 %rd7, %rd1, %rd6;
	atom.global.add.u32 %r2, [%rd7], 1;
	ret;
}
`

// preemptible is one launch of a preemptible kernel, performed like in the executor.
type preemptible struct {
	t           *testing.T
	work, words gpu.Channel
	kernel      gpu.Function
	params      []byte
	run         *preemption.Launch
	control     gpu.Ptr // followed by the record of skipped units and the list
	skipped     gpu.Ptr
	list        gpu.Ptr
}

func (p *preemptible) copyIn(to gpu.Ptr, b []byte) {
	f, err := p.words.CopyIn(to, b)
	ran(p.t, p.words, f, err)
}

// put prepares a plan, up to the launch.
func (p *preemptible) put(plan preemption.Plan) gpu.Fence {
	p.t.Helper()
	for _, at := range plan.Zero {
		p.copyIn(p.control+gpu.Ptr(at), make([]byte, 4))
	}
	if plan.BitmapBytes > 0 {
		f, err := p.words.Set(p.skipped, 0, 1, plan.BitmapBytes)
		ran(p.t, p.words, f, err)
	}
	if plan.List != nil {
		var b []byte
		for _, u := range plan.List {
			b = binary.LittleEndian.AppendUint32(b, u)
		}
		p.copyIn(p.list, b)
	}
	args := plan.Args
	args.Control = uint64(p.control)
	if args.Skipped = 0; p.run.SkippedBytes() > 0 {
		args.Skipped = uint64(p.skipped)
	}
	if plan.List != nil {
		args.List = uint64(p.list)
	}
	params := p.kernel.Attributes().Params
	b := make([]byte, p.kernel.Attributes().ParamBytes)
	copy(b, p.params)
	args.Encode(b[params[len(params)-1].Offset:])
	f, err := p.work.Launch(&gpu.Launch{Function: p.kernel, Params: b, Block: gpu.Dim3{X: 1, Y: 1, Z: 1},
		Grid: gpu.Dim3{X: plan.Grid[0], Y: plan.Grid[1], Z: plan.Grid[2]}})
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// realGPU opens the first GPU and a context on it, or skips the test if there is none.
func realGPU(t *testing.T) (gpu.Device, gpu.Context) {
	t.Helper()
	d, err := nvidia.Open(nvidia.Options{Device: "0"})
	if errors.Is(err, cuda.ErrAbsent) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closed(t, d)
	c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d, c
}

// closed closes c when the test ends.
func closed(t *testing.T, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func channelOf(t *testing.T, c gpu.Context) gpu.Channel {
	t.Helper()
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	closed(t, ch)
	return ch
}

func allocOn(t *testing.T, c gpu.Context, n uint64) gpu.Ptr {
	t.Helper()
	p, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ran waits for a queued command and returns its outcome.
func ran(t *testing.T, ch gpu.Channel, f gpu.Fence, err error) gpu.Outcome {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := ch.Wait(ctx, f); err != nil {
		t.Fatal(err)
	}
	return ch.Outcome(f)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// On a real GPU, evicted kernels leave quickly and the rest is done later: every block runs exactly
// once.
func TestHardwarePreempt(t *testing.T) {
	d, c := realGPU(t)
	const tasks, each = 500_000, 40_000 // in ns: about 5 ms in total
	parsed, err := ptx.Parse(slowPTX)
	if err != nil {
		t.Fatal(err)
	}
	transformed, reports, err := preempt.Transform(parsed, preempt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.LoadModule([]byte(transformed.String()))
	if err != nil {
		t.Fatalf("%v\n%+v", err, reports)
	}
	counts := allocOn(t, c, 4*tasks)
	memory := allocOn(t, c, 8<<20)
	for _, form := range []struct {
		form  abi.PreemptForm
		group uint32
	}{{abi.PreemptSingle, 1}, {abi.PreemptCoarse, 4}, {abi.PreemptPersistent, 4}} {
		t.Run(form.form.String(), func(t *testing.T) {
			f, err := m.Function(preempt.EntryName("slow", form.form))
			if err != nil {
				t.Fatal(err)
			}
			perSM, err := f.Occupancy(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			run, err := preemption.New(preemption.Config{Form: form.form, Grid: [3]uint32{tasks, 1, 1}, Group: form.group, Every: 1,
				Resident: uint32(perSM * d.Properties().SMs)})
			if err != nil {
				t.Fatal(err)
			}
			p := &preemptible{t: t, work: channelOf(t, c), words: channelOf(t, c), kernel: f, run: run,
				control: memory, skipped: memory + 4096, list: memory + 4<<20}
			p.params = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(counts)), each)
			fence, err := p.words.Set(counts, 0, 4, tasks)
			ran(t, p.words, fence, err)

			r := rand.New(rand.NewPCG(1, uint64(form.form)))
			var leaving []time.Duration
			start := time.Now()
			for plan, done := run.First(), false; !done; {
				fence := p.put(plan)
				evicted := false
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				if !plan.Stay && len(leaving) < 200 && p.work.Done() < fence {
					evicted = true
					asked := time.Now()
					p.evict(abi.EvictAll)
					for p.work.Done() < fence {
					}
					leaving = append(leaving, time.Since(asked))
				}
				if o := ran(t, p.work, fence, nil); o.Err != nil {
					t.Fatal(o.Err)
				}
				plan, done = p.next(evicted)
			}
			if len(leaving) == 0 {
				t.Fatal("nothing was evicted")
			}
			t.Logf("%d launches in %v, %d evicted: median %v from the call that writes the word", run.Launches(), time.Since(start), len(leaving), median(leaving))
			got := make([]byte, 4*tasks)
			fence, err = p.words.CopyOut(got, counts)
			ran(t, p.words, fence, err)
			for i := range tasks {
				if n := binary.LittleEndian.Uint32(got[4*i:]); n != 1 {
					t.Fatalf("block %d ran %d times", i, n)
				}
			}
		})
	}
}

// evict writes the evict word without waiting.
func (p *preemptible) evict(word uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], word)
	if _, err := p.words.CopyIn(p.control+abi.ControlEvict, b[:]); err != nil {
		p.t.Fatal(err)
	}
}

// next reads the results of a run and returns the next plan.
func (p *preemptible) next(evicted bool) (preemption.Plan, bool) {
	p.t.Helper()
	var control [abi.ControlBytes]byte
	f, err := p.words.CopyOut(control[:], p.control)
	ran(p.t, p.words, f, err)
	back := preemption.Readback{Control: preemption.DecodeControl(&control), Evicted: evicted}
	back.Skipped = make([]byte, p.run.SkippedRead(back.Control))
	if len(back.Skipped) > 0 {
		f, err = p.words.CopyOut(back.Skipped, p.skipped)
		ran(p.t, p.words, f, err)
	}
	plan, done, err := p.run.Next(back)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan, done
}
