package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"vgpud/mediator/api"
)

// usage is a guest's use of its GPU between two samples. All parts of time are of the time between
// the samples, but for Share.
type usage struct {
	Name      string  `json:"name"`
	GPU       string  `json:"gpu"`
	Weight    float64 `json:"weight"`
	State     string  `json:"state"`
	Busy      float64 `json:"busy"`
	Share     float64 `json:"share"` // of what all guests of the GPU used
	Entitled  float64 `json:"entitled"`
	Suspended float64 `json:"suspended"`
	Kernels   float64 `json:"kernels_per_second"`
	Evictions float64 `json:"evictions_per_second"` // of its kernels
	Waiting   int     `json:"launches_waiting"`     // for their turn, now
	Memory    uint64  `json:"memory_used_bytes"`    // now
}

func usageName(u usage) string { return u.Name }

// usageTable prints the use of GPUs. As SHARE it shows the part of the GPU's time, which can be
// compared with ENTITLED.
var usageTable = table[usage]{columns: func([]usage) []column[usage] { return usageColumns }, name: usageName}

var usageColumns = slices.Concat([]column[usage]{
	textColumn("NAME", usageName),
	textColumn("GPU", func(u usage) string { return u.GPU }),
	textColumn("STATE", func(u usage) string { return u.State }),
	numberColumn("SHARE", percent, func(u usage) float64 { return u.Busy }),
	numberColumn("ENTITLED", percent, func(u usage) float64 { return u.Entitled }),
	numberColumn("SUSPENDED", percent, func(u usage) float64 { return u.Suspended }),
	numberColumn("KERNELS/S", perSecond, func(u usage) float64 { return u.Kernels }),
	bytesColumn("MEMORY", "0B", func(u usage) uint64 { return u.Memory }),
}, inWide(
	numberColumn("WEIGHT", number, func(u usage) float64 { return u.Weight }),
	numberColumn("EVICTIONS/S", perSecond, func(u usage) float64 { return u.Evictions }),
	countColumn("WAITING", func(u usage) int { return u.Waiting }),
))

// sample is what the daemon shows at one moment.
type sample struct {
	at   time.Time
	vms  []api.VM
	gpus []api.GPU
}

// takeSample asks the daemon.
func takeSample(c *cobra.Command, o *options) (s sample, err error) {
	if s.vms, err = ask(c, o, (*api.Client).VMs); err != nil {
		return s, err
	}
	s.at = time.Now()
	s.gpus, err = ask(c, o, (*api.Client).GPUs)
	return s, err
}

// between returns what each guest used between two samples.
func between(before, now []api.VM, elapsed time.Duration) []usage {
	total := make(map[string]float64) // by GPU
	us := make([]usage, 0, len(now))
	for _, v := range now {
		old := v // a new guest has used nothing yet
		if i := slices.IndexFunc(before, func(b api.VM) bool { return b.Name == v.Name }); i >= 0 {
			old = before[i]
		}
		used := max(v.GPUSeconds-old.GPUSeconds, 0)
		total[v.GPU] += used
		us = append(us, usage{
			Name: v.Name, GPU: v.GPU, Weight: v.Weight, State: state(v), Entitled: v.Entitled,
			Busy: used / elapsed.Seconds(), Share: used,
			Suspended: min(max(v.SuspendedSeconds-old.SuspendedSeconds, 0)/elapsed.Seconds(), 1),
			Kernels:   float64(v.Kernels-min(old.Kernels, v.Kernels)) / elapsed.Seconds(),
			Evictions: float64(v.Preemption.Evictions-min(old.Preemption.Evictions, v.Preemption.Evictions)) / elapsed.Seconds(),
			Waiting:   v.Preemption.Launches.Waiting, Memory: v.MemoryUsedBytes,
		})
	}
	for i := range us {
		if t := total[us[i].GPU]; t > 0 {
			us[i].Share /= t
		}
	}
	sortUsage(us, byShare, false)
	return us
}
