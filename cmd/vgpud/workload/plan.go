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

// Plan is what a guest does, on one virtual GPU.
type Plan struct {
	Name string `json:"name"`
	// Socket is the virtual GPU's vfio-user socket, for a guest that is a process
	// beside it. Without one the virtual GPU is the PCI function at the address
	// PCI, or the only one there is: shared by vgpu-agent with Agent, else opened
	// by the guest for itself.
	Socket string `json:"socket,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Agent  bool   `json:"agent,omitempty"`
	// Work is gone through round and round.
	Work []Work `json:"work"`
	// Workers is how many cases are under way at a time, each with buffers of
	// its own; Channels over how many channels.
	Workers  int    `json:"workers"`
	Channels int    `json:"channels"`
	Seed     uint64 `json:"seed"`
	// Priority is that of all launches, as CUDA's: lower is more urgent. 0: none is
	// said.
	Priority int32 `json:"priority,omitempty"`
	// Preempt says in which form kernels are launched: "", the one that its
	// measured cost chooses, where the host takes such launches; "off", as they are
	// written; "single", "coarse" or "persistent", that form of each kernel that has
	// it. VGPU_PREEMPT=off in the environment turns "" off.
	Preempt string `json:"preempt,omitempty"`
	// PauseMicros is how long each worker waits before each launch of a case, and
	// has the latency of every launch reported.
	PauseMicros int `json:"pause_us,omitempty"`
	// Measure asks for a [LatencyReport] about that many launches, in place of
	// work.
	Measure int `json:"measure,omitempty"`
	// Solo asks for a [SoloReport] from that many launches of each of Work, in place
	// of work. No other guest may use the GPU meanwhile.
	Solo int `json:"solo,omitempty"`
	// Idle makes a context and channels, says so, and then nothing more: what an
	// idle guest costs.
	Idle bool `json:"idle,omitempty"`
}

// Work is one case of the corpus.
type Work struct {
	Kernel string `json:"kernel"`
	Size   string `json:"size"`
	// Repeat is how many times its launches go to the GPU between two checks of
	// their results, where they may be repeated.
	Repeat int `json:"repeat"`
	// Throttle, for the kernel of that name, stands in place of Size.
	Throttle *corpus.ThrottleConfig `json:"throttle,omitempty"`
	// SharedBytes is dynamic shared memory of each block, beside what the case asks
	// for: the more, the fewer blocks an SM holds at once.
	SharedBytes uint32 `json:"shared_bytes,omitempty"`
}

// String names the case: "matmul/small".
func (w Work) String() string {
	if w.Throttle != nil {
		return fmt.Sprintf("%s/%d blocks", w.Kernel, w.Throttle.Blocks)
	}
	return w.Kernel + "/" + w.Size
}

// Case makes the case, with inputs that follow from seed.
func (w Work) Case(seed uint64) (corpus.Kernel, *corpus.Case, error) {
	k, ok := corpus.ByName(w.Kernel)
	if !ok {
		return k, nil, fmt.Errorf("the corpus has no kernel %q", w.Kernel)
	}
	if w.Throttle != nil {
		t := *w.Throttle
		if k.Name != "throttle" || min(t.Blocks, t.Threads, t.Iterations) < 1 || t.Threads > 1024 || t.Blocks > 1<<20 || t.Iterations > 1<<30 {
			return k, nil, fmt.Errorf("kernel %s: impossible lengths %+v", w.Kernel, t)
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

// shared gives a case's blocks their shared memory.
func (w Work) shared(c *corpus.Case) *corpus.Case {
	for i := range c.Steps {
		c.Steps[i].SharedBytes += w.SharedBytes
	}
	return c
}

// Report is what a guest says of its work: a line of JSON when it begins, twice
// a second, and at its end.
type Report struct {
	// Ready is said once, when all is loaded and the work begins.
	Ready bool `json:"ready,omitempty"`
	// Kernels ended, Cases were checked, and Wrong of them were wrong.
	Kernels uint64 `json:"kernels"`
	Cases   uint64 `json:"cases"`
	Wrong   uint64 `json:"wrong"`
	// BusySeconds is since the work began, and BackloggedSeconds how much of it
	// there were at least [Backlog] launches under way.
	BusySeconds       float64 `json:"busy_seconds"`
	BackloggedSeconds float64 `json:"backlogged_seconds"`
	// Preemptible is how many of the kernels went in a form that leaves the GPU when
	// asked, and Evictions how often they did.
	Preemptible uint64 `json:"preemptible,omitempty"`
	Evictions   uint64 `json:"evictions,omitempty"`
	// LatenciesMillis are from launch to completion, in milliseconds, of those that
	// ended since the last report, with [Plan.PauseMicros]; at most [MaxLatencies].
	LatenciesMillis []float64 `json:"latencies_ms,omitempty"`
	// Error is the first thing that went wrong.
	Error string `json:"error,omitempty"`
}

// MaxLatencies bounds the latencies of one report; more are dropped.
const MaxLatencies = 512

// ReadPlan reads a plan; what follows it is left.
func ReadPlan(r io.Reader) (Plan, error) {
	var p Plan
	if err := json.NewDecoder(r).Decode(&p); err != nil {
		return p, fmt.Errorf("read the plan: %w", err)
	}
	return p, nil
}

// bus is the way to the plan's virtual GPU.
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

// agentPatience is for how long the agent may be preparing: it begins when its
// guest does, and tries each virtual GPU that comes.
const agentPatience = 15 * time.Minute

// dialAgent opens a part of a virtual GPU by way of the agent, as soon as that has
// it.
func dialAgent(ctx context.Context, address string) (driver.Bus, error) {
	limited, cancel := context.WithTimeout(ctx, agentPatience)
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
