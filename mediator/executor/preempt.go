package executor

import (
	"encoding/binary"
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// Where things lie in the memory of a preemptible launch: its control block unless that
// is in the context's window, what it skips, and the list of what it is to run. The
// alignments are those of lines.
const (
	controlAt  = 0
	evictWord  = abi.ControlEvict // in the control block
	skippedAt  = (abi.ControlBytes + memoryAlign - 1) / memoryAlign * memoryAlign
	memoryUnit = 4 << 10 // what is allocated is a multiple
	// memoryAlign is the alignment of each part, and no more than a device's
	// allocations have.
	memoryAlign = 256

	// keepRecord is how much of the host's memory a job keeps for its next launch.
	maxKeptRecord = 256 << 10
)

// controlMemory is GPU memory of the context's, charged to the guest, for one
// preemptible launch at a time. Between launches all of it is zero that must be.
type controlMemory struct {
	base    gpu.Ptr
	size    uint64
	block   controlBlock
	skipped uint64 // bytes that the launch's record of skipped units has
	dirty   bool   // the record is not zero
	used    bool   // the control block is not
	// ready is how much of the record is read as soon as a kernel has left: the device
	// has been asked for as much before, when nothing ran that may not leave.
	ready uint64
	// wiped is when the control block is zero, where that is under way: a fence of
	// the channel for words.
	wiped gpu.Fence
}

// list is where the list of units to run lies.
func (m *controlMemory) list() gpu.Ptr {
	return m.base + skippedAt + gpu.Ptr(roundUp(m.skipped, memoryAlign))
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// fit makes sure that the memory is enough for a launch. The error is errWaits where it is to
// be had later.
func (x *Executor) fit(m *controlMemory, run *preemption.Launch) error {
	m.skipped = run.SkippedBytes()
	need := roundUp(skippedAt+roundUp(m.skipped, memoryAlign)+run.ListBytes(), memoryUnit)
	if need <= m.size {
		return nil
	}
	if err := x.freeMemory(m); err != nil {
		return err
	}
	base, err := x.allocateNow(need)
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

// rehearse reads the record once before there is anything in it: what a device needs to
// do so behind a kernel, it may have to make first, and wait for the kernel.
func (j *job) rehearse() error {
	m := &j.memory
	n := min(m.skipped, maxKeptRecord)
	if n <= m.ready || j.ch.busyOnGPU() || j.ch.x.parked != nil {
		return nil
	}
	j.room(n)
	if _, err := j.ch.gpu.CopyOut(j.record, m.base+skippedAt); err != nil {
		return fmt.Errorf("read a preemptible launch's record: %w", err)
	}
	m.ready = n
	return nil
}

// release gives the memory back to the guest. The error is errWaits where it is still
// being zeroed: by one small copy, behind nothing but others, but while the context is
// off the GPU that is not done.
func (x *Executor) freeMemory(m *controlMemory) error {
	base, block := m.base, m.block
	over := base == 0 || x.poison != nil || x.o.Context.Fault() != nil // it goes with the context
	if !over && m.wiped > x.words.gpu.Done() {
		x.words.waiter.ask(m.wiped)
		return errWaits
	}
	*m = controlMemory{skipped: m.skipped}
	if over {
		return nil
	}
	if block.window != nil { // a launch that nobody read back has written to it
		block.zero()
		x.controlBlocks.release(block)
	}
	if err := x.o.Context.Free(base); err != nil {
		return fmt.Errorf("free a preemptible launch's memory: %w", err)
	}
	x.forgetRefusals()
	return nil
}

// arguments checks that a function has the parameter that is appended, behind
// paramBytes of its own, and returns where.
func (f *function) arguments(paramBytes uint32) (at uint64, err error) {
	n := len(f.attrs.Params)
	at = roundUp(uint64(paramBytes), 8)
	if n == 0 || f.attrs.Params[n-1] != (gpu.Param{Offset: at, Size: abi.PreemptArgsBytes}) || f.attrs.ParamBytes < at+abi.PreemptArgsBytes {
		return 0, fmt.Errorf("%s with %d bytes of parameters is not a preemptible kernel: its last parameter is not %d bytes at %d: %w",
			f.attrs.Name, paramBytes, abi.PreemptArgsBytes, at, abi.StatusInvalidValue)
	}
	return at, nil
}

// resident is how many of a launch's blocks an SM holds, asked for once for each
// shape.
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

// planFirst makes the first plan of a preemptible launch, and the room that it needs.
func (j *job) planFirst(what abi.Preempt, resident int) (err error) {
	x, g := j.ch.x, j.gl.Grid
	if err := x.ownChannels(); err != nil {
		return err
	}
	if j.run == nil {
		j.run = new(preemption.Launch)
	}
	err = j.run.Reset(preemption.Config{
		Form: what.Form, Grid: [3]uint32{g.X, g.Y, g.Z}, Group: what.Group, Every: what.Every,
		Resident: uint32(max(resident, 0)) * uint32(x.props.SMs),
	})
	switch {
	case errors.Is(err, preemption.ErrTooManyUnits), errors.Is(err, preemption.ErrInvalid):
		return fmt.Errorf("%w: %w", err, abi.StatusInvalidValue)
	case err != nil:
		return err
	}
	if err := x.fit(&j.memory, j.run); err != nil {
		return err
	}
	j.plan = j.run.First()
	return j.rehearse()
}

// prepare writes what the next run is to find in GPU memory. A first launch finds
// all its words zero, and there is nothing to write.
func (j *job) prepare() bool {
	j.ch.x.unpark() // what is long, the driver may write before it returns
	j.phase = preparing
	if j.form == 0 {
		return true
	}
	if err := j.write(); err != nil {
		return j.fail(err)
	}
	return true
}

var zeros [abi.ControlBytes]byte

func (j *job) write() (err error) {
	x, m := j.ch.x, &j.memory
	if m.used {
		// At most some words more than the plan wants are zeroed in one copy.
		if err = j.zero(); err != nil {
			return err
		}
	} else {
		j.words = m.wiped
	}
	if j.plan.BitmapBytes > 0 && m.dirty {
		if j.bulk, err = x.bulk.gpu.Set(m.base+skippedAt, 0, 4, j.plan.BitmapBytes/4); err != nil {
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
	j.bulk, err = x.bulk.gpu.CopyIn(m.list(), j.list)
	return err
}

// zero zeroes the words of the control block that the plan names.
func (j *job) zero() (err error) {
	x, m := j.ch.x, &j.memory
	all := len(j.plan.Zero) == len(abi.ControlWords)
	if m.block.window != nil {
		for _, at := range j.plan.Zero {
			m.block.store(int(at), 0)
		}
		m.used = !all
		return nil
	}
	if all {
		m.used = false
		j.words, err = x.words.gpu.CopyIn(m.block.at, zeros[:])
		m.wiped = j.words
		return err
	}
	for _, at := range j.plan.Zero {
		if j.words, err = x.words.gpu.CopyIn(m.block.at+gpu.Ptr(at), zeros[:4]); err != nil {
			return err
		}
	}
	return nil
}

// wipe zeroes the control block of a launch that is over, for the next one's sake.
func (j *job) wipe() {
	m := &j.memory
	if m.block.window != nil {
		m.block.zero()
		m.used = false
		return
	}
	var err error
	m.wiped, err = j.ch.x.words.gpu.CopyIn(m.block.at, zeros[:])
	m.used = err != nil // whoever wants it next tries again
}

// readAhead has what a kernel that was told to leave leaves read as soon as it has left,
// behind it on its own channel; but for a control block in the window, which takes no copy. Asked for later, by a context that has run dry and that
// somebody more urgent has the GPU in place of, it is read when that one is done; and
// since the context has work then, the GPU changes back to it at the first chance.
func (j *job) readAhead() {
	ch := j.ch
	switch n := ch.second; {
	case j.read != 0, j.besideFence != 0, n != nil && n != j && n.phase == running:
		return
	case ch.gpu.Done()+1 < j.p.fence:
		return // behind something else that is read, the device would wait for the kernel
	}
	var f gpu.Fence
	var err error
	if j.memory.block.window == nil {
		f, err = ch.gpu.CopyOut(j.control[:], j.memory.block.at)
	}
	if j.ahead = min(j.memory.skipped, j.memory.ready); err == nil && j.ahead > 0 {
		j.room(j.ahead)
		f, err = ch.gpu.CopyOut(j.record, j.memory.base+skippedAt)
	}
	if err != nil {
		ch.x.o.Log.Debug("what a kernel leaves is read later", "kernel", j.fn.attrs.Name, "err", err)
		return // its own end says more
	}
	j.read = f
}

// room makes room for n bytes of the record.
func (j *job) room(n uint64) {
	if uint64(cap(j.record)) < n {
		j.record = make([]byte, n)
	}
	j.record = j.record[:n]
}

// readBack asks for what the kernel left.
func (j *job) readBack() bool {
	x := j.ch.x
	read := j.read != 0
	if read {
		err := j.ch.gpu.Outcome(j.read).Err
		if j.read = 0; err != nil {
			return j.fail(err)
		}
	} else {
		j.ahead = 0
	}
	if j.memory.block.window != nil {
		j.memory.block.read(&j.control, j.form)
		return j.readControl()
	}
	if read {
		return j.readControl()
	}
	j.phase = reading
	var err error
	if j.words, err = x.words.gpu.CopyOut(j.control[:], j.memory.block.at); err != nil {
		return j.fail(err)
	}
	return true
}

func (j *job) readControl() bool {
	x := j.ch.x
	if err := x.copied(j); err != nil {
		return j.fail(err)
	}
	c := preemption.DecodeControl(&j.control)
	// A word may have come behind what was read, or not be among what is loaded.
	j.memory.used = j.evicted || j.memory.block.window != nil || j.control != zeros
	n := j.run.SkippedRead(c)
	if n == 0 {
		return j.next(nil)
	}
	j.memory.dirty = true
	if n <= j.ahead {
		return j.next(j.record[:n])
	}
	j.room(n)
	x.unpark() // as before what prepare writes
	j.phase = listing
	var err error
	if j.bulk, err = x.bulk.gpu.CopyOut(j.record, j.memory.base+skippedAt); err != nil {
		return j.fail(err)
	}
	return true
}

// next decides what follows a run: the end, the next one at once, or one when it is
// the job's turn again.
func (j *job) next(record []byte) bool {
	x := j.ch.x
	if err := x.copied(j); err != nil {
		return j.fail(err)
	}
	plan, done, err := j.run.Next(preemption.Readback{Control: preemption.DecodeControl(&j.control), Skipped: record, Evicted: j.evicted})
	switch {
	case err != nil:
		x.o.Log.Debug("preemptible launch ended", "kernel", j.fn.attrs.Name, "err", err)
		j.finish(abi.StatusPreemptState)
		return true
	case done:
		j.finish(abi.StatusOK)
		return true
	}
	j.plan = plan
	asked := j.claim.State() == slotstate.ToEvict
	if !asked && j.ch.job == j && (!x.suspension.on || !x.free()) {
		return j.prepare() // a piece of many, or it left unasked: it goes on
	}
	if asked {
		_, when, _ := j.claim.EvictionRequest()
		x.slot.AddEviction(j.leftAt - when)
	}
	j.claim.Leave(j.leftAt, j.used)
	j.evictions++
	j.giveRoom()
	j.phase = waiting
	return true
}

// clean leaves a job's memory as the next launch wants it.
func (j *job) clean() {
	if cap(j.record) > maxKeptRecord {
		j.record = nil
	}
	if cap(j.list) > maxKeptRecord {
		j.list = nil
	}
	j.words, j.bulk, j.gl = 0, 0, gpu.Launch{}
	j.plan = preemption.Plan{}
	j.lied, j.launched, j.told, j.hushed, j.evicted, j.refilling = false, false, false, false, false, false
	j.besideFence, j.read, j.ahead = 0, 0, 0
	j.used, j.owed, j.start, j.end, j.evictions = 0, 0, 0, 0, 0
}
