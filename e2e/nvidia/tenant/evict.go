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

// victim is a kernel that is evicted: its forms, loaded, and their memory.
type victim struct {
	*bare
	kernel *scaled
	args   [][]byte
	output []result
	forms  abi.PreemptForm
	entry  map[abi.PreemptForm]bareFunction // 0: the original
	slots  map[abi.PreemptForm]int          // of each one's blocks that the GPU holds at a time
	side   gpu.Channel                      // beside the kernel's
	word   [4]byte
	// control, skipped and list are GPU memory; the last two are of unitBytes. window is
	// the way to control, where the context has one.
	control, skipped, list uint64
	window                 gpu.Window
}

// unitBytes is room for a list or a bitmap of any launch's units.
const unitBytes = 4 * preemption.MaxUnits

// evict launches a kernel in a form and evicts it again and again.
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

// comparisons is how many launches of each of two ways of launching are compared.
const comparisons = 15

// compared is how long launches take as the original and in the form, by turns; medians.
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

// again evicts the kernel again and again, and returns how long leaving took where there was
// work left.
func (v *victim) again(ctx context.Context, e *Evict, p abi.Preempt, length time.Duration) (all []time.Duration, err error) {
	// What is looked for is what the driver and the GPU take, and not this program's
	// collector and scheduler. Little is allocated here.
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

// sometime is a random moment of a kernel of that length.
func sometime(length time.Duration) time.Duration {
	part := 0.05 + 0.85*rand.Float64()
	return time.Duration(part * float64(length))
}

// looked is after how many evictions the results are looked at, each of which has to make
// them anew: what one loses would else be there from the launch before.
const looked = 8

// same reports whether the results are what they should be, those of all evictions so far and
// those of some more one by one.
func (v *victim) same(ctx context.Context, p abi.Preempt, length time.Duration, want uint64) (bool, error) {
	for range looked {
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

// begin begins a launch in a form.
func (v *victim) begin(p abi.Preempt) (*preemption.Launch, error) {
	return preemption.New(preemption.Config{Form: p.Form, Grid: v.kernel.grid, Group: p.Group, Every: p.Every, Resident: uint32(v.slots[p.Form])})
}

// put carries a plan out, but does not wait.
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

// timed is how long a launch of the whole kernel takes in a form.
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

// A wave's length is the median of waves, less launchItself: what a launch takes from its
// begin to its end beside what its blocks do, on an H100 at the most.
const (
	waves        = 9
	launchItself = 3 * time.Microsecond
)

// longest is how long a launch takes of as many chunks as the GPU holds at once, all of
// which begin together: as long as the longest of them. A chunk is what a block does
// between two looks at the word.
func (v *victim) longest(ctx context.Context, p abi.Preempt) (time.Duration, error) {
	whole := v.kernel
	defer func() { v.kernel = whole }()
	wave := *whole
	at := uint64(v.slots[p.Form]) * uint64(max(p.Group, 1)) * uint64(max(p.Every, 1))
	for i := range wave.grid { // the first rows of the grid
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

// computed runs the original and sums its results.
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

// results is a job of the kernel's results alone.
func (v *victim) results() *job { return &job{results: v.output} }

// once launches the kernel, evicts it after a while and goes on with it to its end. It
// returns how long leaving took, and whether anything was left to do.
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
	// Who never offers its processor has it taken away every 10 ms, and a goroutine that
	// keeps its thread gets it back by way of another: not while leaving is timed.
	runtime.Gosched()
	for begin := time.Now(); time.Since(begin) < after; {
	}
	if took, err = v.tell(ctx, f); err != nil {
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

// tell writes the word, by a store where it can and else by a copy on a channel beside the
// kernel's, and looks until the kernel has left.
func (v *victim) tell(ctx context.Context, kernel gpu.Fence) (took time.Duration, err error) {
	binary.LittleEndian.PutUint32(v.word[:], abi.EvictAll)
	begin := time.Now()
	var f gpu.Fence
	if v.window != nil {
		v.window.Store32(abi.ControlEvict, abi.EvictAll)
	} else if f, err = v.side.CopyIn(gpu.Ptr(v.control+abi.ControlEvict), v.word[:]); err != nil {
		return 0, err
	}
	if err := v.look(ctx, v.channel, kernel); err != nil {
		return 0, err
	}
	took = time.Since(begin)
	if err := v.look(ctx, v.side, f); err != nil {
		return 0, err
	}
	return took, v.channel.Outcome(kernel).Err
}

// look waits for a command without ever sleeping, as programs of CUDA do: one that
// sleeps has the GPU raise interrupts, and those take time from who measures.
func (v *victim) look(ctx context.Context, ch gpu.Channel, f gpu.Fence) error {
	for ch.Done() < f {
		if ctx.Err() != nil || v.context.Fault() != nil {
			return errors.Join(ctx.Err(), v.context.Fault())
		}
	}
	return nil
}

// end is look for a command that was queued unless err says that it was not.
func (v *victim) end(ctx context.Context, f gpu.Fence, err error) error {
	if err == nil {
		err = v.look(ctx, v.channel, f)
	}
	if err != nil {
		return err
	}
	return v.channel.Outcome(f).Err
}

// readBack reads what the kernel left, when it has.
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
