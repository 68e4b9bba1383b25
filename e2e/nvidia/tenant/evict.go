package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// victim is a kernel to be evicted: its loaded forms and their memory.
type victim struct {
	*bare
	kernel *scaled
	args   [][]byte
	output []result
	forms  abi.PreemptForm
	entry  map[abi.PreemptForm]bareFunction // 0 is the original
	slots  map[abi.PreemptForm]int          // the number of each form's blocks that the GPU holds at a time
	side   gpu.Channel                      // a channel beside the kernel's
	word   [4]byte
	// control, skipped and list are GPU memory; the last two have unitBytes. window gives access to
	// control, if the context has a window.
	control, skipped, list uint64
	window                 gpu.Window
}

// unitBytes is enough for a list or a bitmap of any launch's units.
const unitBytes = 4 * preemption.MaxUnits

// evict launches a kernel in a form and evicts it, Times times.
func (b *bare) evict(ctx context.Context, e *Evict) (_ *Evicted, err error) {
	v, err := b.newVictim(ctx, e.Scaled)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Scaled, err)
	}
	form := abi.Preempt{Form: abi.PreemptForm(e.As.Form), Group: e.As.Group, Every: e.As.Every}
	if form.Form == 0 || v.forms&form.Form == 0 {
		return nil, fmt.Errorf("%s has no form %v", e.Scaled, form.Form)
	}
	found := new(Evicted)
	if found.Original, found.Chosen, err = v.compared(ctx, form); err != nil {
		return nil, err
	}
	if found.Longest, err = v.longest(ctx, form); err != nil {
		return nil, err
	}
	want, err := v.computed(ctx)
	if err != nil {
		return nil, err
	}
	if found.Took, err = v.again(ctx, e, form, found.Original); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Scaled, err)
	}
	if found.Same, err = v.same(ctx, form, found.Original, want); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Scaled, err)
	}
	return found, nil
}

// comparisons is the number of launches for each of two ways of launching.
const comparisons = 15

// compared returns the median durations of launches as the original and in the form, taken in turn.
func (v *victim) compared(ctx context.Context, form abi.Preempt) (original, chosen time.Duration, err error) {
	var took [2][]time.Duration
	for range comparisons {
		for i, p := range []abi.Preempt{{}, form} {
			d, err := v.timed(ctx, p)
			if err != nil {
				return 0, 0, err
			}
			took[i] = append(took[i], d)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	return took[0][comparisons/2], took[1][comparisons/2], nil
}

// again evicts the kernel repeatedly, and returns the times of the evictions that left work to do.
func (v *victim) again(ctx context.Context, e *Evict, p abi.Preempt, length time.Duration) (all []time.Duration, err error) {
	// The measurement is of the driver and the GPU, not of this program's collector and scheduler.
	// Little is allocated here.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	begin := time.Now()
	for n := 0; n < e.Times && (e.For == 0 || time.Since(begin) < e.For); n++ {
		took, left, err := v.once(ctx, p, sometime(length))
		if err != nil {
			return nil, err
		}
		if left {
			all = append(all, took)
		}
	}
	return all, nil
}

// sometime returns a random moment of a kernel of the given length.
func sometime(length time.Duration) time.Duration {
	part := 0.05 + 0.85*rand.Float64()
	return time.Duration(part * float64(length))
}

// resultChecks is the number of evictions after each of which the results are checked. The results
// are cleared before each: otherwise those of an earlier launch would hide a loss.
const resultChecks = 8

// same reports whether the results are correct, after all evictions so far and after each of
// several more.
func (v *victim) same(ctx context.Context, p abi.Preempt, length time.Duration, want uint64) (bool, error) {
	for range resultChecks {
		got, err := v.sum(ctx)
		if err != nil || got != want {
			return false, err
		}
		if err := v.clear(ctx); err != nil {
			return false, err
		}
		if _, _, err := v.once(ctx, p, sometime(length)); err != nil {
			return false, err
		}
	}
	got, err := v.sum(ctx)
	return got == want, err
}

// newVictim loads a kernel's module with all its forms.
func (b *bare) newVictim(ctx context.Context, name string) (*victim, error) {
	s, text, err := scaledByName(name)
	if err != nil {
		return nil, err
	}
	parsed, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	made, reports, err := preempt.Transform(parsed, preempt.Options{})
	if err != nil {
		return nil, err
	}
	v := &victim{bare: b, kernel: s, entry: make(map[abi.PreemptForm]bareFunction), slots: make(map[abi.PreemptForm]int)}
	for _, r := range reports {
		for _, f := range r.Forms {
			if r.Kernel == s.entry {
				v.forms |= f
			}
		}
	}
	mod, err := b.context.LoadModule([]byte(made.String()))
	if err != nil {
		return nil, err
	}
	for _, form := range []abi.PreemptForm{0, abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent} {
		entry := s.entry
		if form != 0 {
			if v.forms&form == 0 {
				continue
			}
			entry = preempt.EntryName(s.entry, form)
		}
		f, err := mod.Function(entry)
		if err != nil {
			return nil, err
		}
		perSM, err := f.Occupancy(int(v.threads()), uint64(s.shared))
		if err != nil {
			return nil, err
		}
		v.entry[form], v.slots[form] = bareFunction{f}, perSM*b.device.Properties().SMs
	}
	if v.args, v.output, err = s.place(ctx, b); err != nil {
		return nil, err
	}
	if v.side, err = b.context.NewChannel(); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		at    *uint64
		bytes uint64
	}{{&v.control, abi.ControlBytes}, {&v.skipped, unitBytes}, {&v.list, unitBytes}} {
		if *p.at, err = b.alloc(ctx, p.bytes); err != nil {
			return nil, err
		}
	}
	if c, ok := b.context.(gpu.Windowed); ok {
		var at gpu.Ptr
		if at, _, v.window = c.Window(); v.window != nil {
			v.control = uint64(at)
		}
	}
	return v, nil
}

func (v *victim) threads() uint32 { return v.kernel.block[0] * v.kernel.block[1] * v.kernel.block[2] }

// begin creates a launch in a form.
func (v *victim) begin(p abi.Preempt) (*preemption.Launch, error) {
	return preemption.New(preemption.Config{Form: p.Form, Grid: v.kernel.grid, Group: p.Group, Every: p.Every, Resident: uint32(v.slots[p.Form])})
}

// put queues the commands of a plan and does not wait for the launch.
func (v *victim) put(ctx context.Context, form abi.PreemptForm, l *preemption.Launch, p *preemption.Plan) (gpu.Fence, error) {
	if n := max(l.SkippedBytes(), l.ListBytes()); n > unitBytes {
		return 0, fmt.Errorf("%d bytes of units", n)
	}
	for _, at := range p.Zero {
		if v.window != nil {
			v.window.Store32(uint64(at), 0)
			continue
		}
		if _, err := v.channel.Set(gpu.Ptr(v.control+uint64(at)), 0, 4, 1); err != nil {
			return 0, err
		}
	}
	if p.BitmapBytes > 0 {
		if _, err := v.channel.Set(gpu.Ptr(v.skipped), 0, 4, p.BitmapBytes/4); err != nil {
			return 0, err
		}
	}
	a := p.Args
	a.Control = v.control
	if l.SkippedBytes() > 0 {
		a.Skipped = v.skipped
	}
	if p.List != nil {
		var b []byte
		for _, u := range p.List {
			b = binary.LittleEndian.AppendUint32(b, u)
		}
		f, err := v.channel.CopyIn(gpu.Ptr(v.list), b)
		if err := v.end(ctx, f, err); err != nil {
			return 0, err
		}
		a.List = v.list
	}
	last := make([]byte, abi.PreemptArgsBytes)
	a.Encode(last)
	return v.start(form, p.Grid, append(v.args[:len(v.args):len(v.args)], last))
}

// start launches an entry.
func (v *victim) start(form abi.PreemptForm, grid [3]uint32, args [][]byte) (gpu.Fence, error) {
	f := v.entry[form]
	params, err := f.params(args...)
	if err != nil {
		return 0, err
	}
	return v.channel.Launch(&gpu.Launch{
		Function: f.Function, Grid: dim3(grid), Block: dim3(v.kernel.block), SharedBytes: uint64(v.kernel.shared), Params: params,
	})
}

// timed returns how long a launch of the whole kernel takes in a form.
func (v *victim) timed(ctx context.Context, p abi.Preempt) (time.Duration, error) {
	var f gpu.Fence
	var err error
	if p.Form == 0 {
		f, err = v.start(0, v.kernel.grid, v.args)
	} else {
		var l *preemption.Launch
		if l, err = v.begin(p); err == nil {
			first := l.First()
			f, err = v.put(ctx, p.Form, l, &first)
		}
	}
	if err := v.end(ctx, f, err); err != nil {
		return 0, err
	}
	o := v.channel.Outcome(f)
	return o.End - o.Start, nil
}

// A wave's length is the median of waves, less launchItself: the time of a launch beyond that of
// its blocks, at most, on an H100.
const (
	waves        = 9
	launchItself = 3 * time.Microsecond
)

// longest launches as many chunks as the GPU holds at once, and returns how long that takes. All
// chunks begin together, so this is the duration of the longest. A chunk is the work of a block
// between two reads of the evict word.
func (v *victim) longest(ctx context.Context, p abi.Preempt) (time.Duration, error) {
	whole := v.kernel
	defer func() { v.kernel = whole }()
	wave := *whole
	at := uint64(v.slots[p.Form]) * uint64(max(p.Group, 1)) * uint64(max(p.Every, 1))
	for i := range wave.grid { // keeps the first rows of the grid
		wave.grid[i] = uint32(max(min(uint64(wave.grid[i]), at), 1))
		at /= uint64(wave.grid[i])
	}
	v.kernel = &wave
	var took []time.Duration
	for range waves {
		d, err := v.timed(ctx, p)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return max(took[len(took)/2]-launchItself, 0), nil
}

// computed runs the original and returns the sum of its results.
func (v *victim) computed(ctx context.Context) (uint64, error) {
	if err := v.clear(ctx); err != nil {
		return 0, err
	}
	if _, err := v.timed(ctx, abi.Preempt{}); err != nil {
		return 0, err
	}
	return v.sum(ctx)
}

func (v *victim) sum(ctx context.Context) (uint64, error) { return v.results().sum(ctx, v.bare) }

func (v *victim) clear(ctx context.Context) error { return v.results().clear(ctx, v.bare) }

// results returns a job that has only the kernel's results.
func (v *victim) results() *job { return &job{results: v.output} }

// once launches the kernel, evicts it after the given time, and resumes it until it completes. It
// returns the duration of the eviction, and whether any work was left.
func (v *victim) once(ctx context.Context, p abi.Preempt, after time.Duration) (took time.Duration, left bool, err error) {
	l, err := v.begin(p)
	if err != nil {
		return 0, false, err
	}
	plan := l.First()
	f, err := v.put(ctx, p.Form, l, &plan)
	if err != nil {
		return 0, false, err
	}
	// The Go runtime preempts a goroutine that has run for 10 ms without a break, and resumes one
	// that is locked to its thread by way of another thread. Yielding here keeps that out of the
	// timed eviction.
	runtime.Gosched()
	for begin := time.Now(); time.Since(begin) < after; {
	}
	if took, err = v.evictAndWait(ctx, f); err != nil {
		return 0, false, err
	}
	for evicted := true; ; evicted = false {
		back, err := v.readBack(ctx, l, evicted)
		if err != nil {
			return 0, false, err
		}
		next, done, err := l.Next(back)
		if err != nil || done {
			return took, left, err
		}
		left = true
		f, err := v.put(ctx, p.Form, l, &next)
		if err := v.end(ctx, f, err); err != nil {
			return 0, false, err
		}
	}
}

// evictAndWait writes the evict word and polls until the kernel has left the GPU. It writes by a
// store if the context has a window, and otherwise by a copy on a channel beside the kernel's.
func (v *victim) evictAndWait(ctx context.Context, kernel gpu.Fence) (took time.Duration, err error) {
	binary.LittleEndian.PutUint32(v.word[:], abi.EvictAll)
	begin := time.Now()
	var f gpu.Fence
	if v.window != nil {
		v.window.Store32(abi.ControlEvict, abi.EvictAll)
	} else if f, err = v.side.CopyIn(gpu.Ptr(v.control+abi.ControlEvict), v.word[:]); err != nil {
		return 0, err
	}
	if err := v.poll(ctx, v.channel, kernel); err != nil {
		return 0, err
	}
	took = time.Since(begin)
	if err := v.poll(ctx, v.side, f); err != nil {
		return 0, err
	}
	return took, v.channel.Outcome(kernel).Err
}

// poll waits for a command without sleeping, as CUDA programs do. Sleeping would make the GPU raise
// interrupts, which take time from the measurement.
func (v *victim) poll(ctx context.Context, ch gpu.Channel, f gpu.Fence) error {
	for ch.Done() < f {
		if ctx.Err() != nil || v.context.Fault() != nil {
			return errors.Join(ctx.Err(), v.context.Fault())
		}
	}
	return nil
}

// end polls for a command. A non-nil err means that the command was not queued; end returns it.
func (v *victim) end(ctx context.Context, f gpu.Fence, err error) error {
	if err == nil {
		err = v.poll(ctx, v.channel, f)
	}
	if err != nil {
		return err
	}
	return v.channel.Outcome(f).Err
}

// readBack reads what the kernel left in the control block and in its list of skipped units, after
// the kernel has left the GPU.
func (v *victim) readBack(ctx context.Context, l *preemption.Launch, evicted bool) (r preemption.Readback, err error) {
	var control [abi.ControlBytes]byte
	f, err := v.channel.CopyOut(control[:], gpu.Ptr(v.control))
	if err := v.end(ctx, f, err); err != nil {
		return r, err
	}
	r = preemption.Readback{Control: preemption.DecodeControl(&control), Evicted: evicted}
	if n := l.SkippedRead(r.Control); n > 0 {
		r.Skipped = make([]byte, n)
		f, err := v.channel.CopyOut(r.Skipped, gpu.Ptr(v.skipped))
		return r, v.end(ctx, f, err)
	}
	return r, nil
}
