package executor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// departure is the request that the context leaves the GPU. Until it is quiet, no command is begun.
type departure struct {
	f    *os.File
	done func(ipc.Saved, error)
}

// maxKeptImages bounds the bytes of modules of a context that may move.
const maxKeptImages = 256 << 20

// Save has the context leave the GPU: once it is quiet, all of it is written to f, in a form in which
// [Executor.Restore] makes it anew, and Run returns. Then done is called without an error. If the context
// can't leave, done is called with the reason, and the context goes on. f is done's to close. The
// goroutine of Step calls done.
func (x *Executor) Save(f *os.File, done func(ipc.Saved, error)) {
	x.do(func() {
		err := x.stays()
		if x.leaving != nil {
			err = errors.New("it is leaving already")
		}
		if err != nil {
			done(ipc.Saved{}, err)
			return
		}
		x.leaving = &departure{f, done}
	})
}

// stays returns why the context can't leave the GPU, or nil.
func (x *Executor) stays() error {
	t := &x.textures
	switch {
	case x.poison != nil:
		return fmt.Errorf("it has ended: %w", x.poison)
	case x.places.movable == nil:
		return errors.New("contexts of this kind of GPU can't be made anew elsewhere")
	case len(t.arrays.byID)+len(t.textures)+len(t.surfaces) > 0:
		return errors.New("it has arrays, textures or surfaces")
	}
	images := 0
	for _, m := range x.modules.byID {
		if m.at == 0 {
			return errors.New("a module's variables take too many addresses")
		}
		images += len(m.image)
	}
	if images > maxKeptImages {
		return fmt.Errorf("its modules have %d bytes, at most %d", images, maxKeptImages)
	}
	return x.places.movable.Stays()
}

// quiet reports whether nothing of the context is on the GPU or on its way there.
func (x *Executor) quiet() bool {
	if x.launches > 0 || x.fills > 0 || x.preempted != nil || len(x.draining) > 0 || len(x.zeroes.flight) > 0 || x.windows.busy {
		return false
	}
	return !slices.ContainsFunc(x.channels, func(ch *channel) bool {
		return ch.first != ch.after || len(ch.deferred) > 0 || ch.job != nil
	})
}

// leaveWhenQuiet saves the context if it is to leave and can leave now. It reports whether the
// context has left, or stays after all.
func (x *Executor) leaveWhenQuiet() bool {
	l := x.leaving
	if l == nil {
		return false
	}
	err := x.stays() // it may have changed since
	if err == nil && !x.quiet() {
		return false
	}
	x.leaving = nil
	if err == nil {
		err = x.save(l.f)
	}
	x.gone = err == nil
	l.done(ipc.Saved{Wants: x.gone && x.wants()}, err)
	return true
}

// wants reports whether the context has commands to carry out. If not, the guest is asked for
// doorbells.
func (x *Executor) wants() bool {
	wants := false
	for _, ch := range x.channels {
		armed := ch.dead || ch.sub.Arm()
		wants = wants || !armed || ch.backlog()
	}
	return wants
}

// contents returns all of the context but its memory, at an instant that is known by the guest's clock
// and by the executor's. The context is quiet.
func (x *Executor) contents(guest, host time.Duration) *savedContext {
	s := &savedContext{
		GuestTime: guest, HostTime: host, Limits: x.limitsSet, Windows: x.windows.at, NextPlace: x.places.next,
		LastModule: x.modules.last, LastFunction: x.functions.last, LastEvent: x.events.last, Printed: x.printed, Peak: x.peakBefore,
	}
	if peak := x.o.MemoryPeak; peak != nil {
		s.Peak = max(s.Peak, peak())
	}
	for _, h := range slices.Sorted(maps.Keys(x.modules.byID)) {
		mod := x.modules.byID[h]
		s.Modules = append(s.Modules, savedModule{Handle: h, Image: mod.image, At: mod.at, Stack: mod.stack})
		for name, h2 := range mod.functions {
			fn := x.functions.byID[h2]
			s.Functions = append(s.Functions, savedFunction{
				Handle: h2, Module: h, Name: name, Mean: fn.mean, Hint: fn.hint, Unresponsive: fn.unresponsive, Set: fn.set,
			})
		}
	}
	for h, ev := range x.events.byID {
		s.Events = append(s.Events, savedEvent{
			Handle: h, Recorded: ev.recorded, Reached: ev.reached, Untimed: ev.untimed, Triggered: ev.triggered,
			At: ev.at, Records: ev.records, Value: ev.value,
		})
	}
	for _, ch := range x.channels {
		s.Channels = append(s.Channels, ch.saved())
	}
	return s
}

// placeIn returns where memory is in a file that has at bytes so far.
func placeIn(at *int64, base gpu.Ptr, size uint64) savedMemory {
	r := savedMemory{base, size, *at}
	*at += int64((size + savedGrain - 1) / savedGrain * savedGrain)
	return r
}

// save writes the context, which is quiet, to a file.
func (x *Executor) save(f *os.File) (err error) {
	m, err := x.newMover(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	now, err := x.o.Device.Now()
	if err != nil {
		return err
	}
	for {
		text, err := x.o.Context.Printf(savedPiece)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			break
		}
		x.printed = keepPrinted(x.printed, text)
	}
	s := x.contents(now+x.shift, x.o.Clock.Now())
	at := int64(0)
	for _, a := range x.memory {
		s.Memory = append(s.Memory, placeIn(&at, a.base, a.size))
	}
	for i := range s.Modules {
		v, _ := x.modules.byID[s.Modules[i].Handle].gpu.(gpu.Variables) // it is placed
		base, n := v.Variables()
		s.Modules[i].Variables = placeIn(&at, base, n)
		if err := m.out(s.Modules[i].Variables); err != nil {
			return err
		}
	}
	for _, r := range s.Memory {
		if err := m.out(r); err != nil {
			return err
		}
	}
	return writeContents(f, at, s)
}

// maxPrinted bounds the bytes that a context's kernels have printed and that move with it.
const maxPrinted = 16 << 20

// keepPrinted returns what was printed with more behind it, of which the oldest is lost if that is too
// much: a guest may never ask for it.
func keepPrinted(printed, more []byte) []byte {
	printed = append(printed, more...)
	return printed[max(len(printed)-maxPrinted, 0):]
}

// saved returns the channel, which is quiet.
func (ch *channel) saved() savedChannel {
	s := savedChannel{Channel: ch.place, Submission: ch.sub.Position(), Completion: ch.com.Position(), Seq: ch.seq, Dead: ch.dead}
	for i := ch.next; i < ch.held; i++ {
		s.Fetched = append(s.Fetched, ch.fetched[i][:]...)
	}
	return s
}

// Restore makes a context anew that [Executor.Save] has saved, but for the channels with the given
// indexes, which were closed since. It is called before Run. The context of the executor is new.
func (x *Executor) Restore(f *os.File, closed []int) error {
	s, err := readContents(f)
	if err != nil {
		return fmt.Errorf("read a saved context: %w", err)
	}
	now, err := x.o.Device.Now()
	if err != nil {
		return err
	}
	x.shift = s.GuestTime + (x.o.Clock.Now() - s.HostTime) - now
	x.record.end()
	if err := x.restoreMemory(f, s); err != nil {
		return err
	}
	for i := range s.Events {
		e := &s.Events[i]
		x.events.byID[e.Handle] = &event{
			recorded: e.Recorded, reached: e.Reached, untimed: e.Untimed, triggered: e.Triggered, at: e.At, records: e.Records, value: e.Value,
		}
	}
	x.modules.last, x.functions.last, x.events.last = s.LastModule, s.LastFunction, s.LastEvent
	x.printed, x.peakBefore, x.places.next = s.Printed, s.Peak, s.NextPlace
	for i := range s.Channels {
		c := &s.Channels[i]
		if slices.Contains(closed, c.Index) {
			continue
		}
		if err := x.reopen(c); err != nil {
			return err
		}
	}
	return nil
}

// restoreMemory restores limits, modules, memory, and windows.
func (x *Executor) restoreMemory(f *os.File, s *savedContext) (err error) {
	m, err := x.newMover(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	movable := x.places.movable
	if movable == nil {
		return errors.New("contexts can't be made anew on this GPU")
	}
	limited, _ := x.o.Context.(gpu.Limited)
	setLimit := func(l uint32, v uint64) error {
		if limited == nil {
			return fmt.Errorf("limit %d: %w", l, gpu.ErrUnsupported)
		}
		return limited.SetLimit(gpu.Limit(l), v)
	}
	for i := range s.Modules {
		o := &s.Modules[i]
		if o.Stack > 0 && len(s.Limits) > 0 {
			if err := setLimit(uint32(gpu.LimitStack), o.Stack); err != nil {
				return err
			}
		}
		if err := x.reload(movable, o); err != nil {
			return fmt.Errorf("load module %d again: %w", o.Handle, err)
		}
		if o.Fresh {
			continue
		}
		if err := m.in(o.Variables, true); err != nil {
			return err
		}
	}
	for l, v := range s.Limits {
		if err := setLimit(l, v); err != nil {
			return err
		}
	}
	x.limitsSet = s.Limits
	for i := range s.Functions {
		if err := x.findAgain(&s.Functions[i]); err != nil {
			return err
		}
	}
	for _, r := range s.Memory {
		if err := movable.AllocAt(r.Base, r.Size); err != nil {
			return err
		}
		x.memory.add(allocation{r.Base, r.Size})
		if err := m.in(r, false); err != nil {
			return err
		}
	}
	if s.Windows == 0 {
		return nil
	}
	mapper, ok := x.o.Context.(gpu.HostMapper)
	if !ok || x.o.SharedFile == nil {
		return fmt.Errorf("map windows: %w", gpu.ErrUnsupported)
	}
	x.windows.at, err = mapper.MapHost(x.o.SharedFile, int64(len(x.o.Shared)-len(x.o.Mappable)), x.o.Mappable, s.Windows)
	return err
}

// reload loads a module where it was.
func (x *Executor) reload(movable gpu.Movable, o *savedModule) error {
	loaded, err := movable.LoadModuleAt(o.Image, o.At)
	if err != nil {
		return err
	}
	v, ok := loaded.(gpu.Variables)
	if !ok {
		return gpu.ErrUnsupported
	}
	if p, n := v.Variables(); n != o.Variables.Size || n > 0 && p != o.Variables.Base {
		return fmt.Errorf("its variables have %d bytes at %#x, had %d at %#x: %w", n, uint64(p), o.Variables.Size, uint64(o.Variables.Base), gpu.ErrInvalidModule)
	}
	x.modules.byID[o.Handle] = &module{
		gpu: loaded, functions: make(map[string]uint64), hash: hashOf(o.Image), image: o.Image, at: o.At, stack: o.Stack,
	}
	return nil
}

// findAgain finds a function in its module.
func (x *Executor) findAgain(o *savedFunction) error {
	m, err := x.modules.get(o.Module)
	if err != nil {
		return err
	}
	f, err := m.gpu.Function(o.Name)
	if err != nil {
		return err
	}
	x.functions.byID[o.Handle] = &function{
		gpu: f, attrs: f.Attributes(), module: o.Module, hash: m.kernelHash(o.Name),
		mean: o.Mean, hint: o.Hint, unresponsive: o.Unresponsive, set: o.Set,
	}
	m.functions[o.Name] = o.Handle
	return nil
}

// reopen opens a channel where it was in its rings.
func (x *Executor) reopen(c *savedChannel) error {
	if len(c.Fetched) > fetchEntries*abi.EntrySize {
		return fmt.Errorf("channel %d: %d bytes of commands", c.Index, len(c.Fetched))
	}
	if err := x.open(c.Channel); err != nil {
		return err
	}
	ch := x.find(c.Index)
	ch.sub.Resume(c.Submission)
	ch.com.Resume(c.Completion)
	ch.seq, ch.dead = c.Seq, c.Dead
	for b := c.Fetched; len(b) >= abi.EntrySize; b = b[abi.EntrySize:] {
		copy(ch.fetched[ch.held][:], b)
		ch.held++
	}
	return nil
}
