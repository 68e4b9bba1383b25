package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"vgpud/mediator/api"
)

func vmName(v api.VM) string { return v.Name }

// vmTable prints guests.
var vmTable = table[api.VM]{columns: vmColumnsOf, name: vmName}

// vmColumns show all parts of time as parts of the GPU's: SHARE, ENTITLED, CAP and GUARANTEE.
var vmColumns = slices.Concat([]column[api.VM]{
	textColumn("NAME", vmName),
	textColumn("GPU", vmGPU),
	numberColumn("WEIGHT", number, func(v api.VM) float64 { return v.Weight }),
	textColumn("STATE", state),
	numberColumn("SHARE", percent, func(v api.VM) float64 { return v.BusyRatio }),
	numberColumn("ENTITLED", percent, func(v api.VM) float64 { return v.Entitled }),
	numberColumn("GPU-SECONDS", seconds, func(v api.VM) float64 { return v.GPUSeconds }),
	numberColumn("SUSPENDED", seconds, func(v api.VM) float64 { return v.SuspendedSeconds }),
	countColumn("KERNELS", func(v api.VM) uint64 { return v.Kernels }),
	countColumn("EVICTIONS", func(v api.VM) uint64 { return v.Preemption.Evictions }),
	countColumn("ERRORS", func(v api.VM) uint64 { return v.Errors }),
}, inWide(slices.Concat([]column[api.VM]{
	bytesColumn("MEMORY", "0B", func(v api.VM) uint64 { return v.MemoryUsedBytes }),
	bytesColumn("LIMIT", "-", func(v api.VM) uint64 { return v.MemoryLimitBytes }),
	numberColumn("CAP", ratio, func(v api.VM) float64 { return v.Cap }),
	numberColumn("GUARANTEE", ratio, func(v api.VM) float64 { return v.Guarantee }),
	countColumn("PRIORITY", func(v api.VM) int { return v.PriorityCeiling }),
	numberColumn("LATENCY", wanted, func(v api.VM) float64 { return v.Latency.Seconds() }),
	textColumn("LAUNCHES", launches),
	textColumn("HELD-BACK", heldBack),
}, ifUsed(hasEvents,
	countColumn("EVENT-KERNELS", func(v api.VM) int { return len(v.EventKernels) }),
	countColumn("EVENTS", func(v api.VM) uint64 { return v.Events }),
	countColumn("DROPPED", func(v api.VM) uint64 { return v.EventsDropped }),
), []column[api.VM]{
	textColumn("DOMAIN", func(v api.VM) string { return v.Domain }),
})...))

// hasEvents reports whether a guest has, or had, kernels that are started by events.
func hasEvents(v api.VM) bool { return len(v.EventKernels) > 0 || v.Events > 0 || v.EventsDropped > 0 }

// wanted formats a time that may be asked for; 0 means that it isn't.
func wanted(seconds float64) string {
	return timeOr(time.Duration(math.Round(seconds*1e9)), "-")
}

// vmGPU returns the name of a guest's GPU, or that it floats.
func vmGPU(v api.VM) string {
	if v.Float {
		return "floats"
	}
	return v.GPU
}

// vmColumnsOf returns the columns for these guests: with their problems if one has any.
func vmColumnsOf(vms []api.VM) []column[api.VM] {
	problem := func(v api.VM) string { return cmp.Or(v.Silent, v.Lost) }
	if !slices.ContainsFunc(vms, func(v api.VM) bool { return problem(v) != "" }) {
		return vmColumns
	}
	return append(slices.Clone(vmColumns), textColumn("PROBLEM", problem))
}

// state returns a guest's state in one word.
func state(v api.VM) string {
	switch {
	case v.Lost != "":
		return "lost"
	case v.Silent != "":
		return "silent"
	case !v.Attached:
		return "detached"
	case v.Suspended:
		return "suspended"
	case v.Active:
		return "active"
	default:
		return "idle"
	}
}

// heldBack says in a word why a guest is held back, and for which other one.
func heldBack(v api.VM) string {
	switch h := v.HeldBack; {
	case h == nil:
		return ""
	case h.For != "":
		return h.Reason + " of " + h.For
	default:
		return h.Reason
	}
}

// launches formats the numbers of a guest's waiting, running and evicted launches: 3/1/0.
func launches(v api.VM) string {
	l := v.Preemption.Launches
	return fmt.Sprintf("%d/%d/%d", l.Waiting, l.Running, l.Leaving)
}
