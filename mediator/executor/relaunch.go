package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"vgpud/gpu"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// Layout of the memory of a preemptible launch: its control block, unless that is in the context's
// window; the record of skipped units; and the list of units to run.
const (
	controlAt  = 0
	evictWord  = abi.ControlEvict // in the control block
	skippedAt  = (abi.ControlBytes + memoryAlign - 1) / memoryAlign * memoryAlign
	memoryUnit = 4 << 10 // sizes are multiples of it
	// memoryAlign is the alignment of each part, and no more than that of a device's allocations.
	memoryAlign = 256

	// maxKeptRecord is how much host memory a job keeps for its next launch, in bytes.
	maxKeptRecord = 256 << 10
)

// controlMemory is GPU memory of the context's, charged to the guest, for one preemptible launch at
// a time. Between launches it is zero where it must be.
type controlMemory struct {
	base    gpu.Ptr
	size    uint64
	block   controlBlock
	skipped uint64 // size of the launch's record of skipped units
	dirty   bool   // the record is not zero
	used    bool   // the control block is not zero
	// ready is how much of the record is read as soon as a kernel has left: the device was asked
	// for as much before, when nothing was running.
	ready uint64
	// wiped is the fence by which the control block is zero, on the channel for words.
	wiped gpu.Fence
}

// list returns the address of the list of units to run.
func (m *controlMemory) list() gpu.Ptr {
	return m.base + skippedAt + gpu.Ptr(roundUp(m.skipped, memoryAlign))
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// fit makes the memory large enough for a launch. The error is errWaits if that may be possible
// later.
func (x *Executor) fit(m *controlMemory, l *preemption.Launch) error {
	m.skipped = l.SkippedBytes()
	need := roundUp(skippedAt+roundUp(m.skipped, memoryAlign)+l.ListBytes(), memoryUnit)
	if need <= m.size {
		return nil
	}
	if err := x.freeMemory(m); err != nil {
		return err
	}
	base, err := x.allocateNow(need, x.o.Context.Alloc)
	if err == errWaits {
		return err
	}
	if err != nil {
		return fmt.Errorf("allocate %d bytes for a preemptible launch: %w", need, err)
	}
	*m = controlMemory{base: base, size: need, skipped: m.skipped}
	var ok bool
	if m.block, ok = x.controlBlocks.allocate(); !ok {
		m.block.at = base + controlAt
	}
	return nil
}

// warmUp reads the record once while there is nothing in it. A device may have to create what it
// needs to read it behind a kernel, and would wait for the kernel then.
func (j *job) warmUp() error {
	m := &j.memory
	n := min(m.skipped, maxKeptRecord)
	if n <= m.ready || j.ch.busyOnGPU() || j.ch.x.preempted != nil {
		return nil
	}
	j.growRecord(n)
	if _, err := j.ch.gpu.CopyOut(j.record, m.base+skippedAt); err != nil {
		return fmt.Errorf("read a preemptible launch's record: %w", err)
	}
	m.ready = n
	return nil
}

// freeMemory gives the memory back to the guest. The error is errWaits while it is being zeroed, by
// one small copy. While the context is off the GPU that copy is not done.
func (x *Executor) freeMemory(m *controlMemory) error {
	base, block := m.base, m.block
	gone := base == 0 || x.poison != nil || x.o.Context.Fault() != nil // it goes with the context
	if !gone && m.wiped > x.words.gpu.Done() {
		x.words.waiter.ask(m.wiped)
		return errWaits
	}
	*m = controlMemory{skipped: m.skipped}
	if gone {
		return nil
	}
	if block.window != nil { // a launch that was not read back has written to it
		x.controlBlocks.release(block)
	}
	if err := x.o.Context.Free(base); err != nil {
		return fmt.Errorf("free a preemptible launch's memory: %w", err)
	}
	x.forgetRefusals()
	return nil
}

// arguments checks that a function has the additional parameter of preemptible kernels behind
// paramBytes of its own, and returns its offset.
func (f *function) arguments(paramBytes uint32) (at uint64, err error) {
	n := len(f.attrs.Params)
	at = roundUp(uint64(paramBytes), 8)
	if n == 0 || f.attrs.Params[n-1] != (gpu.Param{Offset: at, Size: abi.PreemptArgsBytes}) || f.attrs.ParamBytes < at+abi.PreemptArgsBytes {
		return 0, fmt.Errorf("%s with %d bytes of parameters is not a preemptible kernel: its last parameter is not %d bytes at %d: %w",
			f.attrs.Name, paramBytes, abi.PreemptArgsBytes, at, abi.StatusInvalidValue)
	}
	return at, nil
}

// resident returns how many of a launch's blocks an SM holds. It asks the driver only if the shape
// of the blocks has changed.
func (f *function) resident(threads int, shared uint64) (int, error) {
	if f.shape.threads != threads || f.shape.shared != shared {
		n, err := f.gpu.Occupancy(threads, shared)
		if err != nil {
			return 0, err
		}
		f.shape.threads, f.shape.shared, f.shape.resident = threads, shared, n
	}
	return f.shape.resident, nil
}

// planFirst makes the first plan of a preemptible launch, and the memory that it needs.
func (j *job) planFirst(p abi.Preempt) (err error) {
	x, g := j.ch.x, j.launch.Grid
	if err := x.ownChannels(); err != nil {
		return err
	}
	if j.relaunch == nil {
		j.relaunch = new(preemption.Launch)
	}
	err = j.relaunch.Reset(preemption.Config{
		Form: p.Form, Grid: [3]uint32{g.X, g.Y, g.Z}, Group: p.Group, Every: p.Every,
		Resident: uint32(max(j.resident, 0)) * uint32(x.props.SMs),
	})
	switch {
	case errors.Is(err, preemption.ErrTooManyUnits), errors.Is(err, preemption.ErrInvalid):
		return fmt.Errorf("%w: %w", err, abi.StatusInvalidValue)
	case err != nil:
		return err
	}
	if err := x.fit(&j.memory, j.relaunch); err != nil {
		return err
	}
	j.plan = j.relaunch.First()
	return j.warmUp()
}

// prepare writes what the next run is to find in GPU memory. A first run finds it zero, and nothing
// need be written.
func (j *job) prepare(e jobEvent) bool {
	j.ch.x.resume() // the driver may wait for the GPU to write what is long
	j.to(e)
	if j.form != 0 {
		if err := j.write(); err != nil {
			return j.fail(err)
		}
	}
	return true
}

var zeros [abi.ControlBytes]byte

func (j *job) write() (err error) {
	x, m := j.ch.x, &j.memory
	if m.used {
		// One copy may zero a few words more than the plan wants.
		if err = j.zeroControl(); err != nil {
			return err
		}
	} else {
		j.copies.words = m.wiped
	}
	if j.plan.BitmapBytes > 0 && m.dirty {
		if j.copies.bulk, err = x.bulk.gpu.Set(m.base+skippedAt, 0, 4, j.plan.BitmapBytes/4); err != nil {
			return err
		}
		m.dirty = false
	}
	if j.plan.List == nil {
		return nil
	}
	j.list = j.list[:0]
	for _, u := range j.plan.List {
		j.list = binary.LittleEndian.AppendUint32(j.list, u)
	}
	m.dirty = true // for another launch, whose record may reach as far
	j.copies.bulk, err = x.bulk.gpu.CopyIn(m.list(), j.list)
	return err
}

// zeroControl zeroes the words of the control block that the plan names.
func (j *job) zeroControl() (err error) {
	x, m := j.ch.x, &j.memory
	all := len(j.plan.Zero) == len(abi.ControlWords)
	switch {
	case m.block.window != nil && slices.Contains(j.plan.Zero, abi.ControlSkipped):
		m.block = x.controlBlocks.another(m.block)
		m.used = false
	case m.block.window != nil:
		// A persistent kernel goes on. Blocks that come before the store leave, and are launched again.
		m.block.store(evictWord, 0)
	case all:
		m.used = false
		j.copies.words, err = x.words.gpu.CopyIn(m.block.at, zeros[:])
		m.wiped = j.copies.words
	default:
		for _, at := range j.plan.Zero {
			if j.copies.words, err = x.words.gpu.CopyIn(m.block.at+gpu.Ptr(at), zeros[:4]); err != nil {
				return err
			}
		}
	}
	return err
}

// wipeControl zeroes the control block of a launch that is over, for the next one.
func (j *job) wipeControl() {
	m := &j.memory
	if m.block.window != nil {
		m.block = j.ch.x.controlBlocks.another(m.block)
		m.used = false
		return
	}
	var err error
	m.wiped, err = j.ch.x.words.gpu.CopyIn(m.block.at, zeros[:])
	m.used = err != nil // then the next launch tries again
}

// readEarly has what a kernel that was told to leave leaves read as soon as it has left, behind it
// on its own channel. A control block in the window needs no copy. If it were asked for later, by a
// context without other work while a more urgent guest has the GPU, it would be read when that
// guest is done; and since the context has work then, the GPU would change back to it first.
func (j *job) readEarly() {
	ch := j.ch
	switch n := ch.second; {
	case j.run.read != 0, j.run.corun != 0, n != nil && n != j && n.state.onGPU():
		return
	case ch.gpu.Done()+1 < j.p.fence:
		return // behind another read the device would wait for the kernel
	}
	var f gpu.Fence
	var err error
	if j.memory.block.window == nil {
		f, err = ch.gpu.CopyOut(j.control[:], j.memory.block.at)
	}
	if j.run.early = min(j.memory.skipped, j.memory.ready); err == nil && j.run.early > 0 {
		j.growRecord(j.run.early)
		f, err = ch.gpu.CopyOut(j.record, j.memory.base+skippedAt)
	}
	if err != nil {
		ch.x.o.Log.Debug("what a kernel leaves is read later", "kernel", j.fn.attrs.Name, "err", err)
		return // the kernel's own end tells more
	}
	j.run.read = f
}

// growRecord makes room for n bytes of the record.
func (j *job) growRecord(n uint64) {
	if uint64(cap(j.record)) < n {
		j.record = make([]byte, n)
	}
	j.record = j.record[:n]
}

// readBack reads what the kernel left, or asks for it.
func (j *job) readBack() bool {
	x := j.ch.x
	j.to(kernelLeft)
	read := j.run.read != 0
	if read {
		err := j.ch.gpu.Outcome(j.run.read).Err
		if j.run.read = 0; err != nil {
			return j.fail(err)
		}
	} else {
		j.run.early = 0
	}
	if j.memory.block.window != nil {
		j.memory.block.read(&j.control, j.form)
		x.controlBlocks.loaded()
		return j.readControl()
	}
	if read {
		return j.readControl()
	}
	var err error
	if j.copies.words, err = x.words.gpu.CopyOut(j.control[:], j.memory.block.at); err != nil {
		return j.fail(err)
	}
	return true
}

func (j *job) readControl() bool {
	x := j.ch.x
	if err := x.outcomeOf(&j.copies); err != nil {
		return j.fail(err)
	}
	c := preemption.DecodeControl(&j.control)
	// An evict word may have been written after the read, or not be among the words that are
	// loaded.
	j.memory.used = j.run.evicted || j.memory.block.window != nil || j.control != zeros
	n := j.relaunch.SkippedRead(c)
	if n == 0 {
		return j.next(nil)
	}
	j.memory.dirty = true
	if n <= j.run.early {
		return j.next(j.record[:n])
	}
	j.growRecord(n)
	x.resume() // as in prepare
	j.to(skippedWanted)
	var err error
	if j.copies.bulk, err = x.bulk.gpu.CopyOut(j.record, j.memory.base+skippedAt); err != nil {
		return j.fail(err)
	}
	return true
}

// tellOfBadControl logs what was wrong with a control block. The guest can make that happen as often
// as it likes, so the operator sees the first time of each context.
func (x *Executor) tellOfBadControl(j *job, err error) {
	level := slog.LevelWarn
	if x.badControlTold {
		level = slog.LevelDebug
	}
	x.badControlTold = true
	x.o.Log.Log(context.Background(), level, "preemptible launch ended: its control block was overwritten by the guest's kernels, or the GPU's memory is at fault",
		"kernel", j.fn.attrs.Name, "form", j.form, "runs", j.total.runs, "evictions", j.total.evictions, "err", err)
}

// next decides what follows a run: the job's end, its next run at once, or its next turn.
func (j *job) next(record []byte) bool {
	x := j.ch.x
	if err := x.outcomeOf(&j.copies); err != nil {
		return j.fail(err)
	}
	plan, done, err := j.relaunch.Next(preemption.Readback{Control: preemption.DecodeControl(&j.control), Skipped: record, Evicted: j.run.evicted})
	switch {
	case err != nil:
		x.tellOfBadControl(j, err)
		j.finish(abi.StatusPreemptState)
		return true
	case done:
		j.finish(abi.StatusOK)
		return true
	}
	j.plan = plan
	asked := j.slot.State() == slotstate.ToEvict
	if !asked && j.ch.job == j && (!x.suspension.on || !x.free()) {
		return j.prepare(workRemains) // it is one of several runs, or left unasked
	}
	if asked {
		_, when, _ := j.slot.EvictionRequest()
		x.slot.AddEviction(j.run.stopped - when)
	}
	j.slot.Leave(j.run.stopped, j.total.used)
	j.total.evictions++
	j.to(turnGivenUp)
	return true
}
