package workload

import (
	"fmt"
	"os"
	"strings"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// forms are the values of [Plan.Preempt] that name one.
var forms = map[string]abi.PreemptForm{
	"single": abi.PreemptSingle, "coarse": abi.PreemptCoarse, "persistent": abi.PreemptPersistent,
}

// contextOptions are those of the plan's context.
func (p *Plan) contextOptions() (driver.ContextOptions, error) {
	o := driver.ContextOptions{Priority: p.Priority}
	form := forms[p.Preempt]
	switch {
	case form != 0:
		o.Preempt = &driver.PreemptOptions{Forms: form}
	case p.Preempt == "off" || p.Preempt == "" && strings.EqualFold(os.Getenv(driver.PreemptVariable), "off"):
		o.Preempt = &driver.PreemptOptions{Off: true}
	case p.Preempt != "":
		return o, fmt.Errorf("form %q: want off, single, coarse, persistent or nothing", p.Preempt)
	case !p.Agent: // else it is the agent's to say
		o.Preempt = &driver.PreemptOptions{}
	}
	return o, nil
}

// Batch is the work of a guest with kernels of about 30 ms on a GPU in software. They have many blocks, of which that
// holds eight at a time for 1.3 ms, so a kernel leaves in about that. They always go in the form that leaves when asked.
func Batch() Plan {
	return Plan{Name: "batch", Workers: 2, Channels: 2, Preempt: "single", Work: []Work{{
		Kernel: "throttle", Repeat: 1, Throttle: &corpus.ThrottleConfig{Blocks: 192, Threads: 32, Iterations: 200}, SharedBytes: 48 << 10,
	}}}
}

// Urgent is the work of a guest that has something short to compute now and then, 0.2 ms on a GPU in software, and waits
// for it, at a priority above the usual.
func Urgent() Plan {
	return Plan{Name: "urgent", Workers: 1, Channels: 1, Priority: -10, PauseMicros: 5000, Work: []Work{{
		Kernel: "throttle", Repeat: 1, Throttle: &corpus.ThrottleConfig{Blocks: 4, Threads: 32, Iterations: 50},
	}}}
}
