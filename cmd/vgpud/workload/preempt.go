package workload

import (
	"fmt"
	"os"
	"strings"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// forms maps values of [Plan.Preempt] to the forms that they name.
var forms = map[string]abi.PreemptForm{
	"single": abi.PreemptSingle, "coarse": abi.PreemptCoarse, "persistent": abi.PreemptPersistent,
}

// contextOptions returns the options of the plan's context.
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
	case !p.Agent: // otherwise the agent chooses
		o.Preempt = &driver.PreemptOptions{}
	}
	return o, nil
}

// Batch returns the work of a guest with kernels of about 30 ms on a GPU in software. They have
// many blocks, of which that GPU holds eight at a time for 1.3 ms, so an evicted kernel leaves in
// about that time. They are always launched in a preemptible form.
func Batch() Plan {
	return Plan{Name: "batch", Workers: 2, Channels: 2, Preempt: "single", Work: []Work{{
		Kernel: "throttle", Repeat: 1, Throttle: &corpus.ThrottleConfig{Blocks: 192, Threads: 32, Iterations: 200}, SharedBytes: 48 << 10,
	}}}
}

// Urgent returns the work of a guest that now and then launches a short kernel, 0.2 ms on a GPU in
// software, at a raised priority and waits for it.
func Urgent() Plan {
	return Plan{Name: "urgent", Workers: 1, Channels: 1, Priority: -10, PauseMicros: 5000, Work: []Work{{
		Kernel: "throttle", Repeat: 1, Throttle: &corpus.ThrottleConfig{Blocks: 4, Threads: 32, Iterations: 50},
	}}}
}
