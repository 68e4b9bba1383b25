package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"vgpud/clock"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
)

// Plan is the work of a guest on one virtual GPU.
type Plan struct {
	Name string `json:"name"`
	// Socket is the virtual GPU's vfio-user socket, for a guest that is a process beside it.
	// Without one the virtual GPU is the PCI function at the address PCI, or the only one: shared
	// through vgpu-agent if Agent is set, otherwise opened by the guest for itself.
	Socket string `json:"socket,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Agent  bool   `json:"agent,omitempty"`
	// Work is repeated in turn.
	Work []Work `json:"work"`
	// Workers is how many cases run at a time, each with buffers of its own, over Channels
	// channels.
	Workers  int    `json:"workers"`
	Channels int    `json:"channels"`
	Seed     uint64 `json:"seed"`
	// Priority is the priority of all launches, as in CUDA: lower is more urgent. 0 leaves the
	// default.
	Priority int32 `json:"priority,omitempty"`
	// Preempt is the form in which kernels are launched. "" chooses by measured cost, if the host
	// supports preemptible launches; "off" launches them as written; "single", "coarse" or
	// "persistent" selects that form for each kernel that has it. VGPU_PREEMPT=off in the
	// environment turns "" off.
	Preempt string `json:"preempt,omitempty"`
	// PauseMicros is how long each worker waits before each launch of a case. If set, every
	// launch's latency is reported.
	PauseMicros int `json:"pause_us,omitempty"`
	// Measure asks for a [LatencyReport] on that many launches instead of work.
	Measure int `json:"measure,omitempty"`
	// Solo asks for a [SoloReport] from that many launches of each of Work, instead of work. No
	// other guest may use the GPU meanwhile.
	Solo int `json:"solo,omitempty"`
	// Job is a job to do, instead of work: the plan ends with a [JobReport].
	Job *Job `json:"job,omitempty"`
	// Begin asks for a [BeginReport], instead of work.
	Begin *Begin `json:"begin,omitempty"`
	// Events asks for launches of event kernels, instead of work: each answers with an [EventsReport].
	Events *Events `json:"events,omitempty"`
	// Idle creates a context and channels, reports, and then does nothing: it shows the cost of an
	// idle guest.
	Idle bool `json:"idle,omitempty"`
}

// Work is one case of the corpus.
type Work struct {
	Kernel string `json:"kernel"`
	Size   string `json:"size"`
	// Repeat is how many times its launches are sent between two checks of their results, if they
	// may be repeated.
	Repeat int `json:"repeat"`
	// Throttle replaces Size for the kernel of that name.
	Throttle *corpus.ThrottleConfig `json:"throttle,omitempty"`
	// SharedBytes is dynamic shared memory of each block, in addition to the case's: the more, the
	// fewer blocks an SM holds at once.
	SharedBytes uint32 `json:"shared_bytes,omitempty"`
}

// String names the case, for example "matmul/small".
func (w Work) String() string {
	if w.Throttle != nil {
		return fmt.Sprintf("%s/%d blocks", w.Kernel, w.Throttle.Blocks)
	}
	return w.Kernel + "/" + w.Size
}

// Case returns the case, with inputs derived from seed.
func (w Work) Case(seed uint64) (corpus.Kernel, *corpus.Case, error) {
	k, ok := corpus.ByName(w.Kernel)
	if !ok {
		return k, nil, fmt.Errorf("the corpus has no kernel %q", w.Kernel)
	}
	if w.Throttle != nil {
		t := *w.Throttle
		if k.Name != "throttle" || min(t.Blocks, t.Threads, t.Iterations) < 1 || t.Threads > 1024 || t.Blocks > 1<<20 || t.Iterations > 1<<30 {
			return k, nil, fmt.Errorf("kernel %s: sizes out of range: %+v", w.Kernel, t)
		}
		t.Start = uint32(seed)
		return k, w.shared(corpus.Throttle(t)), nil
	}
	size, err := corpus.ParseSize(w.Size)
	if err != nil {
		return k, nil, fmt.Errorf("kernel %s: %w", w.Kernel, err)
	}
	return k, w.shared(k.Case(size, seed)), nil
}

// shared adds w.SharedBytes to a case's launches.
func (w Work) shared(c *corpus.Case) *corpus.Case {
	for i := range c.Steps {
		c.Steps[i].SharedBytes += w.SharedBytes
	}
	return c
}

// Report is a line of JSON about a guest's work, written at its start, twice a second, and at its
// end.
type Report struct {
	// Ready is set once, when everything is loaded and the work begins.
	Ready bool `json:"ready,omitempty"`
	// Kernels were completed and Cases checked, of which Wrong were wrong.
	Kernels uint64 `json:"kernels"`
	Cases   uint64 `json:"cases"`
	Wrong   uint64 `json:"wrong"`
	// BusySeconds is the time since the work began, and BackloggedSeconds the part of it with at
	// least [Backlog] pending launches.
	BusySeconds       float64 `json:"busy_seconds"`
	BackloggedSeconds float64 `json:"backlogged_seconds"`
	// Preemptible is how many of the kernels were launched in a preemptible form, and Evictions how
	// often they were evicted.
	Preemptible uint64 `json:"preemptible,omitempty"`
	Evictions   uint64 `json:"evictions,omitempty"`
	// LatenciesMillis are the times from launch to completion, in milliseconds, of the launches
	// that ended since the last report, if [Plan.PauseMicros] is set; at most [MaxLatencies].
	LatenciesMillis []float64 `json:"latencies_ms,omitempty"`
	// Error is the first error.
	Error string `json:"error,omitempty"`
}

// MaxLatencies bounds the latencies of one report; more are dropped.
const MaxLatencies = 512

// ReadPlan reads a plan and nothing after it.
func ReadPlan(r io.Reader) (Plan, error) {
	var p Plan
	if err := json.NewDecoder(r).Decode(&p); err != nil {
		return p, fmt.Errorf("read the plan: %w", err)
	}
	return p, nil
}

// bus opens the plan's virtual GPU.
func (p *Plan) bus(ctx context.Context) (driver.Bus, error) {
	switch {
	case p.Socket != "":
		return driver.DialVFIOUser(ctx, p.Socket)
	case p.Agent:
		return dialAgent(ctx, p.PCI)
	}
	bus, err := driver.OpenPCI(ctx, driver.PCI{}, p.PCI)
	if err != nil {
		return nil, err
	}
	return bus, nil
}

// agentLimit bounds the wait for the agent, which starts with its guest and first tries each
// virtual GPU.
const agentLimit = 15 * time.Minute

// dialAgent opens a part of a virtual GPU through the agent, as soon as the agent has it.
func dialAgent(ctx context.Context, address string) (driver.Bus, error) {
	limited, cancel := context.WithTimeout(ctx, agentLimit)
	defer cancel()
	for {
		bus, err := driver.DialAgent(ctx, driver.AgentOptions{Address: address})
		if err == nil {
			return bus, nil
		}
		if clock.Sleep(limited, clock.Real{}, 100*time.Millisecond) != nil {
			return nil, err
		}
	}
}
