package driver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
	"vgpud/mediator/vgpu/abi"
)

// PreemptOptions say whether and how a context's kernels are made preemptible; the zero value will do.
type PreemptOptions struct {
	// Off leaves all kernels as they are.
	Off bool
	// Wanted is what is wanted of a form: latency and overhead.
	Wanted tune.Parameters
	// Forms are those that are made; 0: all, but none of kernels that are known to be short.
	Forms abi.PreemptForm
	// Memory keeps what was learned about kernels for the next module or program; nil: for as long as the device is
	// open. A [cache.File] is one, and an [AgentBus] another.
	Memory Memory
}

// Memory keeps what programs learn about kernels.
type Memory interface {
	// Recall returns what is known of those kernels, in any order.
	Recall(ctx context.Context, keys []cache.Key) ([]cache.Entry, error)
	// Learn takes in what was learned, in place of what was known.
	Learn(ctx context.Context, entries []cache.Entry) error
}

// Preempt says in which form to launch a kernel, in place of the form that its measured cost would choose.
type Preempt struct {
	// Form is one form, 0 the original.
	Form abi.PreemptForm
	// Group is how many tasks a block runs for a look, or fetches at a time; 0: 1 (single) or 8.
	Group uint32
	// Every is how many fetches a persistent block makes for a look; 0: 1.
	Every uint32
}

// usualGroup is for a coarse or persistent form that was asked for without a number.
const usualGroup = 8

// choice fills in what is zero.
func (p Preempt) choice() abi.Preempt {
	c := abi.Preempt{Form: p.Form, Group: p.Group, Every: p.Every}
	if c.Form == 0 {
		return abi.Preempt{}
	}
	if c.Group == 0 {
		c.Group = usualGroup
		if c.Form == abi.PreemptSingle {
			c.Group = 1
		}
	}
	if c.Every == 0 {
		c.Every = 1
	}
	return c
}

// Preemption is what is known of a kernel's forms.
type Preemption struct {
	Kernel string
	// Forms are those that launches choose from beside the original. Reason says why there are none, or not more, in
	// a word from a list, and Detail more.
	Forms          abi.PreemptForm
	Reason, Detail string
	// Launches is how many there were, and Preemptible how many of them in another form than the original. Evictions
	// is how often they were taken off the GPU.
	Launches, Preemptible, Evictions uint64
	// Classes are what was measured and chosen for grids of several sizes.
	Classes []tune.Report
}

// PreemptVariable is the environment variable that turns preemptible kernels off for programs that leave it to the
// agent, with the value "off".
const PreemptVariable = "VGPU_PREEMPT"

// preemptOff reports whether the environment says so.
func preemptOff() bool { return strings.EqualFold(os.Getenv(PreemptVariable), "off") }

// Reasons beside those of package preempt, for kernels of a module that is loaded as it was written.
const (
	reasonOff      = "off"     // nobody asked for more
	reasonHost     = "host"    // the host does not take preemptible launches
	reasonNotPTX   = "not-ptx" // machine code
	reasonSyntax   = "does-not-parse"
	reasonTooLong  = "too-long"      // the module, or what becomes of it
	reasonRefused  = "host-refused"  // the host loads the original only
	reasonShort    = "short"         // known to end within the latency wanted
	reasonUnknown  = "gpu-unknown"   // it does not say what it is
	reasonNoneMade = "not-asked-for" // of the forms that there are
)

// preempting is what a context knows about making kernels preemptible.
type preempting struct {
	opts PreemptOptions
	why  Preemption // Reason and Detail, where all kernels stay as they are

	asking       sync.Mutex
	gpu          string // "" until it was asked
	sms          int
	threadsPerSM int

	mu      sync.Mutex
	dirty   map[*forms]struct{} // what was learned and not told yet; guarded by mu
	told    chan struct{}       // holds one where something is dirty
	stop    chan struct{}
	stopped chan struct{} // closed when the teller has ended; nil: there is none
}

// preempter is a bus that says how its program's kernels are to be.
type preempter interface{ Preempt() *PreemptOptions }

// needed are the features without which kernels stay as they are.
const needed = abi.FeaturePreempt | abi.FeatureLaunchAttributes | abi.FeatureFunctions

// newPreempting finds out what is wanted of a context.
func (c *Context) newPreempting() *preempting {
	o := c.opts.Preempt
	if o == nil {
		if b, ok := c.dev.bus.(preempter); ok {
			o = b.Preempt()
		}
	}
	p := &preempting{dirty: map[*forms]struct{}{}, told: make(chan struct{}, 1), stop: make(chan struct{})}
	switch missing := needed &^ c.dev.info.Features; {
	case o == nil || o.Off:
		p.why = Preemption{Reason: reasonOff}
	case missing != 0:
		p.why = Preemption{Reason: reasonHost, Detail: fmt.Sprintf("the host does not offer %v", missing)}
	}
	if o != nil {
		p.opts = *o
	}
	if p.opts.Memory == nil {
		p.opts.Memory = c.dev.learned
	}
	return p
}

// identify asks the GPU what it is, once: measured times are kept by that.
func (p *preempting) identify(ctx context.Context, c *Context) error {
	p.asking.Lock()
	defer p.asking.Unlock()
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

// Preemption tells in which forms the kernel can be launched, and why not in others.
func (f *Function) Preemption() Preemption {
	k := f.forms
	if k == nil {
		p := f.why
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
