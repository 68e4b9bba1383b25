package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"vgpud/mediator/api"
)

func newDescribeGPU(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "gpu NAME...",
		Short: "Show all that there is about a GPU, and which guests are on it",
		Long: `Show all that there is about a GPU, in words, and which guests are on it. Of a GPU that is
drained this shows whom it still waits for. Programs read "vgpuctl get gpu NAME -o json".`,
		Args:              atLeast("NAME..."),
		ValidArgsFunction: completeSeveral(o, (*api.Client).GPUs, gpuName),
		RunE: func(c *cobra.Command, args []string) error {
			return describeEach(c, args, func(name string) ([]string, error) {
				all, err := ask(c, o, (*api.Client).GPUs)
				if err != nil {
					return nil, err
				}
				found, err := named(all, gpuName, "gpus", name)
				if err != nil {
					return nil, err
				}
				vms, err := ask(c, o, (*api.Client).VMs)
				return describeGPU(&found[0], vms), err
			})
		},
	}
}

// describeGPU returns the lines of a GPU's description. vms are all guests.
func describeGPU(g *api.GPU, vms []api.VM) []string {
	return linesOf(gpuIdentityOf(g), gpuTimeOf(g), gpuMemoryOf(g), accountingOf(g), gpuPreemptionOf(g), hardwareOf(g), guestsOn(g, vms))
}

func gpuIdentityOf(g *api.GPU) (s section) {
	s.add("Name", g.Name)
	s.add("Model", fmt.Sprintf("%s, %d SMs", g.Model, g.SMs))
	s.add("Status", gpuStatus(*g))
	s.add("Problem", g.Problem)
	decides := "about guests"
	if g.ByKernel {
		decides = "about kernels"
	}
	s.add("Policy", g.Policy+", which decides "+decides)
	s.add("Event kernels", yesNo(g.EventKernels))
	return s
}

func gpuTimeOf(g *api.GPU) section {
	s := section{head: "Time"}
	s.add("Busy", percent(g.BusyRatio)+" lately")
	s.add("Busy, in all", spell(g.BusySeconds))
	s.add("Idle, in all", spell(g.IdleSeconds))
	s.add("Switching", fmt.Sprintf("%s, %d switches between contexts", spell(g.SwitchingSeconds), g.Switches))
	return s
}

func gpuMemoryOf(g *api.GPU) section {
	s := section{head: "Memory"}
	s.add("In all", size(g.MemoryBytes))
	if g.GrantedBytes > 0 {
		s.add("Granted", size(g.GrantedBytes)+" to contexts that float")
	}
	if g.SpareBytes > 0 {
		s.add("Lent", size(g.SpareBytes)+" to spare executors")
	}
	return s
}

func accountingOf(g *api.GPU) section {
	s := section{head: "Accounting"}
	source := g.AccountingSource
	if g.AccountingSourceReason != "" {
		source += ": " + g.AccountingSourceReason
	}
	s.add("Source", source)
	s.add("Processor time", spell(g.AccountingCPUSeconds))
	s.add("Gaps", fmt.Sprintf("%d, %s in all", g.Gaps, spell(g.GapSeconds)))
	realTime := "yes"
	if !g.RealTime {
		realTime = strings.TrimSuffix("no: "+g.RealTimeProblem, ": ")
	}
	s.add("Real time", realTime)
	return s
}

func gpuPreemptionOf(g *api.GPU) section {
	s := section{head: "Preemption"}
	s.add("Launches", fmt.Sprintf("%d wait, %d run, %d leave", g.Launches.Waiting, g.Launches.Running, g.Launches.Leaving))
	evictions := "0"
	if g.Evictions.Count > 0 {
		evictions = fmt.Sprintf("%d, half of them within %s, 99%% within %s", g.Evictions.Count, brief(g.Evictions.P50), brief(g.Evictions.P99))
	}
	s.add("Evictions", evictions)
	return s
}

// hardwareOf has what the driver tells, as the columns for hardware show it.
func hardwareOf(g *api.GPU) section {
	s := section{head: "Hardware"}
	if g.Hardware == nil {
		return s
	}
	for _, c := range hardwareColumns {
		if value := c.value(*g); value != "-" {
			head := c.head
			if len(head) > len("UUID") { // no abbreviation
				head = head[:1] + strings.ToLower(head[1:])
			}
			s.add(head, value)
		}
	}
	s.add("Problem", g.Hardware.Problem)
	return s
}

// guestsOn has the guests that have contexts on a GPU, or may have some.
func guestsOn(g *api.GPU, vms []api.VM) section {
	s := section{head: "Guests"}
	for i := range vms {
		v := &vms[i]
		if n, there := v.On(g.Name); there {
			s.add(v.Name, fmt.Sprintf("%s, %s, weight %s, %s of the time lately", state(*v), contexts(n), number(v.Weight), percent(v.BusyRatio)))
		}
	}
	return s
}
