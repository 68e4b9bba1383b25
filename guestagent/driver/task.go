package driver

import (
	"errors"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Task is what a context that floats needs of a GPU.
type Task struct {
	// MemoryBytes is the GPU memory that the context will take. If it takes more, up to its guest's
	// limit, its commands may wait until a GPU has that.
	MemoryBytes uint64
	// Blocks is the most thread blocks of any launch, and Threads the most threads of a block, up
	// to [abi.MaxTaskThreads]; 0 if they are not known.
	Blocks, Threads uint32
}

// Placement is where a context that floats is.
type Placement struct {
	State abi.TaskState
	// Reason is why the context waits.
	Reason abi.WaitReason
	// GPU is the number, from 0, of its GPU on the host, and Granted its memory there in bytes.
	GPU     int
	Granted uint64
	// Waited is how long it waited for a GPU.
	Waited time.Duration
}

// describe writes what a context that is created next in a slot is.
func (d *Device) describe(slot int, o *ContextOptions) error {
	if err := d.put(uint32(abi.ContextSlot(slot, abi.ContextTag)), o.Tag); err != nil {
		return err
	}
	if d.info.Features&abi.FeatureFloating == 0 {
		return nil
	}
	var flags abi.ContextFlagsBits
	if o.Task != nil {
		flags = abi.ContextFloats
		q := abi.TaskRequest{Memory: o.Task.MemoryBytes, Blocks: o.Task.Blocks, Threads: o.Task.Threads}
		for i, v := range q.Encode() {
			if err := d.put(uint32(abi.TaskRow(slot, 4*i)), v); err != nil {
				return err
			}
		}
	}
	// Another program may have left a flag there.
	return d.put(uint32(abi.ContextSlot(slot, abi.ContextFlags)), uint32(flags))
}

// put is set of a register whose value the device refuses only where it refuses what is created with it,
// too. Nobody asks the device then, which takes two more accesses: they are what a context's creation
// takes most of its time for.
func (d *Device) put(reg, v uint32) error {
	if _, ok := d.bus.(partialBus); ok {
		return d.set(reg, v) // the agent writes it
	}
	return d.bus.Write(reg, v)
}

// Placement returns where the context is. One that does not float has [abi.TaskNone].
func (c *Context) Placement() (Placement, error) {
	if c.dev.info.Features&abi.FeatureFloating == 0 {
		return Placement{}, nil
	}
	var err error
	read := func(reg int) uint64 {
		v, rerr := c.dev.bus.Read(uint32(abi.TaskRow(c.slot, reg)))
		err = errors.Join(err, rerr)
		return uint64(v)
	}
	p := Placement{
		State: abi.TaskState(read(abi.TaskStatus)), Reason: abi.WaitReason(read(abi.TaskReason)), GPU: int(read(abi.TaskGPU)) - 1,
		Granted: read(abi.TaskGrantedLo) | read(abi.TaskGrantedHi)<<32,
		Waited:  time.Duration(read(abi.TaskWaitedLo) | read(abi.TaskWaitedHi)<<32),
	}
	if err != nil {
		return Placement{}, err
	}
	return p, nil
}
