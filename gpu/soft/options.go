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

// Options describe a soft GPU. The zero value of each field stands for the default named there.
type Options struct {
	Name string   // "vgpud soft GPU"
	UUID [16]byte // derived from the name
	// Machine is the shape of the GPU, 4 SMs, and how it takes turns. Its Live is always set.
	Machine machine.Config
	// MemoryBytes is the GPU's memory, 1 GiB.
	MemoryBytes uint64
	// WarpTime is how long the whole GPU takes for one simple instruction of a warp, 200 ns: its speed. Half of it must
	// be enough to interpret one here; BenchmarkCorpus says whether it is.
	WarpTime time.Duration
	// Lead is how far interpretation may be ahead of the modelled time, 2 ms.
	Lead time.Duration
	// PollWindow is how long the pacing thread looks for work before it sleeps, 50 µs, none with fewer than three
	// processors, where it would keep those from theirs that it looks for;
	// negative: none.
	PollWindow time.Duration
	// Priority is the level of SCHED_FIFO to ask for, 20; it should be above the sampler's. Negative: don't.
	Priority int
	// CodeBytes is how much of the host's memory compiled modules may take, 1 GiB; those of one owner, a quarter.
	CodeBytes uint64
	// Contexts caps the contexts, 256; Channels those of one context, 72: a guest's 64 and some of its executor's; Modules
	// likewise, 256; Allocations, 4,096.
	Contexts, Channels, Modules, Allocations int
	// Log is where faults and refusals go; nil: nowhere.
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
	setDefault(&o.Modules, 256)
	setDefault(&o.Allocations, 1<<12)
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

// Validate says what is wrong with the options, defaults applied.
func (o Options) Validate() error {
	o = o.WithDefaults()
	switch {
	case o.MemoryBytes < 1<<20 || o.MemoryBytes > contextSpan:
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

// Limits of a thread block and a grid: those of compute capability 8.0.
const (
	maxBlockThreads = 1024
	maxGridX        = 1<<31 - 1
	maxGridYZ       = 1<<16 - 1
	maxBlockZ       = 64
)

// properties describes the GPU that o makes.
func (o Options) properties() gpu.Properties {
	m := o.Machine
	return gpu.Properties{
		Name: o.Name, UUID: o.UUID, Major: 8, Minor: 0,
		SMs: m.SMs, ThreadsPerSM: m.SM.Threads, BlocksPerSM: m.SM.Blocks, ThreadsPerBlock: maxBlockThreads,
		SharedPerSM: m.SM.Shared, SharedPerBlock: min(48<<10, m.SM.Shared), SharedPerBlockOptin: m.SM.Shared,
		RegistersPerSM: m.SM.Registers, MemoryBytes: o.MemoryBytes, ClockHz: 1e9,
		MaxGrid:     gpu.Dim3{X: maxGridX, Y: maxGridYZ, Z: maxGridYZ},
		MaxBlockDim: gpu.Dim3{X: maxBlockThreads, Y: maxBlockThreads, Z: maxBlockZ},
		L2Bytes:     4 << 20,
		Preempts:    m.Mode == machine.Slices,
		CoRuns:      m.Mode == machine.CoRun,
	}
}

// costs is simt's cost model in cycles of this GPU. It says how long an SM is busy, and the SMs share the GPU's speed.
func (o Options) costs() *simt.CostModel {
	c := simt.DefaultCosts
	// The interpreter starts a block in much less time than these many instructions take it, and a kernel of one small
	// block should be quick.
	c.Block, c.Warp = 8, 2
	scale := min(uint64(o.WarpTime)*uint64(o.Machine.SMs), 1<<22)
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		f.SetUint(f.Uint() * scale)
	}
	return &c
}
