package driver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// PreemptOptions configure whether and how a context's kernels are made preemptible. The zero value
// is usable.
type PreemptOptions struct {
	// Off leaves all kernels as they were written.
	Off bool
	// Wanted is the latency and overhead that forms should have.
	Wanted tune.Parameters
	// Forms are those to make; 0 means all, but none of kernels that are known to be short.
	Forms abi.PreemptForm
	// Memory keeps what was learned about kernels for the next module or program; nil keeps it as
	// long as the device is open. [cache.File] and [AgentBus] implement it.
	Memory Memory
}

// Memory keeps what programs learn about kernels.
type Memory interface {
	// Recall returns what is known about those kernels, in any order.
	Recall(ctx context.Context, keys []cache.Key) ([]cache.Entry, error)
	// Learn replaces what is known about the entries' kernels.
	Learn(ctx context.Context, entries []cache.Entry) error
}

// Preempt selects the form of a launch, in place of the choice by measured cost.
type Preempt struct {
	// Form is one form, 0 the original.
	Form abi.PreemptForm
	// Group is how many tasks a block runs for each check of the evict word, or fetches at a time;
	// 0 means 1 (single) or 8.
	Group uint32
	// Every is how many fetches a persistent block makes for each check; 0 means 1.
	Every uint32
}

// defaultGroup is the group of a coarse or persistent form that was asked for without one.
const defaultGroup = 8

// choice replaces zeros by defaults.
func (p Preempt) choice() abi.Preempt {
	c := abi.Preempt{Form: p.Form, Group: p.Group, Every: p.Every}
	if c.Form == 0 {
		return abi.Preempt{}
	}
	if c.Group == 0 {
		c.Group = defaultGroup
		if c.Form == abi.PreemptSingle {
			c.Group = 1
		}
	}
	if c.Every == 0 {
		c.Every = 1
	}
	return c
}

// Preemption describes a kernel's forms.
type Preemption struct {
	Kernel string
	// Forms are those that launches choose from beside the original. Reason says in a fixed word
	// why there are none, or fewer than could be; Detail explains it.
	Forms          abi.PreemptForm
	Reason, Detail string
	// Launches counts all launches, Preemptible those in another form than the original, Evictions
	// how often they were evicted.
	Launches, Preemptible, Evictions uint64
	// Classes are the measurements and choices for grids of several sizes.
	Classes []tune.Report
}

// PreemptVariable is the environment variable that, set to "off", turns preemptible kernels off in
// programs that leave the setting to the agent.
const PreemptVariable = "VGPU_PREEMPT"

// preemptOff reports whether the environment turns preemptible kernels off.
func preemptOff() bool { return strings.EqualFold(os.Getenv(PreemptVariable), "off") }

// Reasons beside those of package preempt.
const (
	reasonOff      = "off"     // neither the program nor the agent asked for it
	reasonHost     = "host"    // the host does not support preemptible launches
	reasonNotPTX   = "not-ptx" // machine code
	reasonSyntax   = "does-not-parse"
	reasonTooLong  = "too-long"      // the module, or the text with its forms
	reasonRefused  = "host-refused"  // the host loads only the original
	reasonShort    = "short"         // known to end within the wanted latency
	reasonUnknown  = "gpu-unknown"   // the GPU's name or size could not be read
	reasonNoneMade = "not-asked-for" // none of the possible forms was asked for
)

// preemption is the preemption state of a context.
type preemption struct {
	opts     PreemptOptions
	disabled Preemption // Reason and Detail if no kernel is made preemptible

	gpuMu        sync.Mutex
	gpu          string // "" until it was read
	sms          int
	threadsPerSM int

	// host is the latency that the host asks for, in ns; 0 is none. It was asked for when the GPU's
	// clock was at asked.
	host  atomic.Int64
	asked atomic.Uint64
	// suspension is how long the host's hardware takes to suspend a kernel, in ns; 0 if it does not.
	suspension atomic.Int64

	mu      sync.Mutex
	dirty   map[*forms]struct{} // kernels with unsaved measurements; guarded by mu
	wake    chan struct{}       // holds a value if dirty is not empty, or the host is to be asked
	stop    chan struct{}
	stopped chan struct{} // closed when the flusher has ended; nil if there is none
}

// preemptBus is a bus that knows the setting for its program.
type preemptBus interface{ Preempt() *PreemptOptions }

// needed are the features that preemptible launches need.
const needed = abi.FeaturePreempt | abi.FeatureLaunchAttributes | abi.FeatureFunctions

// newPreemption returns the preemption state of a new context.
func (c *Context) newPreemption() *preemption {
	o := c.opts.Preempt
	if o == nil {
		if b, ok := c.dev.bus.(preemptBus); ok {
			o = b.Preempt()
		}
	}
	p := &preemption{dirty: map[*forms]struct{}{}, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	switch missing := needed &^ c.dev.info.Features; {
	case o == nil || o.Off:
		p.disabled = Preemption{Reason: reasonOff}
	case c.dev.info.Version < abi.Version1_3:
		p.disabled = Preemption{Reason: reasonHost, Detail: "the host has an older version, in which kernels count the tasks that they have finished"}
	case missing != 0:
		p.disabled = Preemption{Reason: reasonHost, Detail: fmt.Sprintf("the host does not offer %v", missing)}
	}
	if o != nil {
		p.opts = *o
	}
	if p.opts.Memory == nil {
		p.opts.Memory = c.dev.learned
	}
	if p.disabled.Reason == "" {
		p.askHost(c.dev.bus)
	}
	return p
}

// identify reads once which GPU this is. Measurements are kept per GPU.
func (p *preemption) identify(ctx context.Context, c *Context) error {
	p.gpuMu.Lock()
	defer p.gpuMu.Unlock()
	if p.gpu != "" {
		return nil
	}
	name, err := c.DeviceName(ctx)
	if err != nil {
		return err
	}
	var n [4]uint64
	for i, a := range []uint32{abi.DeviceSMs, abi.DeviceMaxThreadsPerSM, abi.DeviceComputeMajor, abi.DeviceComputeMinor} {
		if n[i], err = c.DeviceAttribute(ctx, a); err != nil {
			return err
		}
	}
	const most = 1 << 16
	if n[0] == 0 || n[0] > most || n[1] == 0 || n[1] > most {
		return fmt.Errorf("a GPU with %d SMs of %d threads", n[0], n[1])
	}
	p.sms, p.threadsPerSM = int(n[0]), int(n[1])
	p.gpu = fmt.Sprintf("%s, sm_%d%d, %d SMs", name, n[2], n[3], n[0])
	return nil
}

// Preemption describes the kernel's forms.
func (f *Function) Preemption() Preemption {
	k := f.forms
	if k == nil {
		p := f.noForms
		p.Kernel = f.name
		return p
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.info
	p.Kernel = f.name
	if k.tuner != nil {
		p.Classes = k.tuner.Reports()
	}
	return p
}
