package soft

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/simt"
)

// Options describe a soft GPU. A zero field stands for the default stated with it.
type Options struct {
	Name string   // "vgpud soft GPU"
	UUID [16]byte // derived from the name
	// Machine is the shape of the GPU, by default 4 SMs, and how contexts share it. Live is always
	// set.
	Machine machine.Config
	// MemoryBytes is the size of the GPU's memory, 1 GiB.
	MemoryBytes uint64
	// WarpTime is the speed of the GPU: the time in which the whole GPU executes one simple warp
	// instruction, 200 ns. Interpreting one must take at most half of it; BenchmarkCorpus measures
	// that.
	WarpTime time.Duration
	// Lead is how far interpretation may be ahead of the modelled time, 2 ms.
	Lead time.Duration
	// PollWindow is how long the pacing thread polls for work before it sleeps, 50 µs. It is 0 with
	// fewer than three processors, where polling would delay the producers of the work. Negative
	// means 0.
	PollWindow time.Duration
	// Priority is the SCHED_FIFO level to request, 20. It should be above that of the sampler.
	// Negative means none.
	Priority int
	// CodeBytes is how much of the host's memory compiled modules may use, 1 GiB. Those of one
	// owner may use a quarter.
	CodeBytes uint64
	// Contexts limits the contexts, 256. Channels limits those of one context, 72: a guest's 64 and
	// some of its executor's. Modules (1,024) and Allocations (65,536) are limits of one context, too.
	Contexts, Channels, Modules, Allocations int
	// Log receives faults and refusals. nil means no log.
	Log *slog.Logger
}

// WithDefaults returns o with zero fields filled in.
func (o Options) WithDefaults() Options {
	setDefault(&o.Name, "vgpud soft GPU")
	setDefault(&o.MemoryBytes, 1<<30)
	setDefault(&o.WarpTime, 200*time.Nanosecond)
	setDefault(&o.Lead, 2*time.Millisecond)
	if o.PollWindow == 0 && runtime.NumCPU() > 2 {
		o.PollWindow = 50 * time.Microsecond
	}
	o.PollWindow = max(o.PollWindow, 0)
	setDefault(&o.Priority, 20)
	setDefault(&o.Contexts, 256)
	setDefault(&o.Channels, 72)
	setDefault(&o.Modules, 1<<10)
	setDefault(&o.Allocations, 1<<16)
	setDefault(&o.CodeBytes, 1<<30)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.UUID == [16]byte{} {
		copy(o.UUID[:], "vgpud-soft-gpu-0")
		for i, b := range []byte(o.Name) {
			o.UUID[i%len(o.UUID)] ^= b
		}
	}
	setDefault(&o.Machine.SMs, 4)
	o.Machine = o.Machine.WithDefaults()
	o.Machine.Live = true
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error if o, with defaults filled in, is invalid.
func (o Options) Validate() error {
	o = o.WithDefaults()
	switch {
	case o.MemoryBytes < 1<<20 || o.MemoryBytes > contextSpace:
		return fmt.Errorf("soft GPU: %d bytes of memory: want 1 MiB to 16 GiB", o.MemoryBytes)
	case o.WarpTime < time.Nanosecond || o.WarpTime > time.Millisecond:
		return fmt.Errorf("soft GPU: warp time %v: want 1ns to 1ms", o.WarpTime)
	case o.Lead < 0:
		return fmt.Errorf("soft GPU: lead %v is negative", o.Lead)
	case o.Priority > 99:
		return fmt.Errorf("soft GPU: priority %d: SCHED_FIFO has 1 to 99", o.Priority)
	case o.Contexts < 1 || o.Channels < 1 || o.Modules < 1 || o.Allocations < 1:
		return fmt.Errorf("soft GPU: a limit on contexts, channels, modules or allocations is below 1")
	}
	return o.Machine.Validate()
}

// Limits of a thread block and a grid, those of compute capability 8.0.
const (
	maxBlockThreads = 1024
	maxGridX        = 1<<31 - 1
	maxGridYZ       = 1<<16 - 1
	maxBlockZ       = 64
)

// properties returns the properties of the GPU that o describes.
func (o Options) properties() gpu.Properties {
	m := o.Machine
	return gpu.Properties{
		Name: o.Name, UUID: o.UUID, Major: 8, Minor: 0,
		SMs: m.SMs, ThreadsPerSM: m.SM.Threads, BlocksPerSM: m.SM.Blocks, ThreadsPerBlock: maxBlockThreads,
		SharedPerSM: m.SM.Shared, SharedPerBlock: min(48<<10, m.SM.Shared), SharedPerBlockOptin: m.SM.Shared,
		RegistersPerSM: m.SM.Registers, MemoryBytes: o.MemoryBytes, StartBytes: ContextBytes, ClockHz: 1e9,
		MaxGrid:     gpu.Dim3{X: maxGridX, Y: maxGridYZ, Z: maxGridYZ},
		MaxBlockDim: gpu.Dim3{X: maxBlockThreads, Y: maxBlockThreads, Z: maxBlockZ},
		L2Bytes:     4 << 20,
		Preempts:    m.Mode == machine.Slices,
		CoRuns:      m.Mode == machine.CoRun,
		SideBySide:  m.Mode != machine.CoRun,
	}
}

// costs returns simt's cost model in cycles of this GPU, for which an SM is busy. The SMs share the
// GPU's speed.
func (o Options) costs() *simt.CostModel {
	c := simt.DefaultCosts
	// The interpreter starts a block in much less time than a block takes for this many
	// instructions, and a kernel of one small block should be quick.
	c.Block, c.Warp = 8, 2
	scale := min(uint64(o.WarpTime)*uint64(o.Machine.SMs), 1<<22)
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		f.SetUint(f.Uint() * scale)
	}
	return &c
}
