package main

import (
	"fmt"
	"slices"
	"strings"

	"vgpud/mediator/api"
)

func gpuName(g api.GPU) string { return g.Name }

// gpuTable prints GPUs.
var gpuTable = table[api.GPU]{columns: gpuColumnsOf, name: gpuName, shown: withoutBuckets}

// withoutBuckets leaves out a histogram, which is for metrics.
func withoutBuckets(g api.GPU) api.GPU {
	g.Evictions.Buckets = nil
	return g
}

var gpuColumns = slices.Concat([]column[api.GPU]{
	textColumn("NAME", gpuName),
	textColumn("MODEL", func(g api.GPU) string { return g.Model }),
	textColumn("STATUS", gpuStatus),
	textColumn("POLICY", func(g api.GPU) string { return g.Policy }),
	countColumn("VMS", func(g api.GPU) int { return g.VMs }),
	numberColumn("BUSY", percent, func(g api.GPU) float64 { return g.BusyRatio }),
	numberColumn("BUSY-SECONDS", seconds, func(g api.GPU) float64 { return g.BusySeconds }),
	countColumn("SWITCHES", func(g api.GPU) uint64 { return g.Switches }),
}, inWide(
	bytesColumn("MEMORY", "-", func(g api.GPU) uint64 { return g.MemoryBytes }),
	textColumn("ACCOUNTING", func(g api.GPU) string { return g.AccountingSource }),
	numberColumn("ACCOUNTING-CPU", seconds, func(g api.GPU) float64 { return g.AccountingCPUSeconds }),
	countColumn("GAPS", func(g api.GPU) uint64 { return g.Gaps }),
	textColumn("REAL-TIME", func(g api.GPU) string { return yesNo(g.RealTime) }),
	countColumn("EVICTIONS", func(g api.GPU) uint64 { return g.Evictions.Count }),
	optionalColumn("EVICTION-P50", brief, evictionTime(func(g api.GPU) float64 { return g.Evictions.P50 })),
	optionalColumn("EVICTION-P99", brief, evictionTime(func(g api.GPU) float64 { return g.Evictions.P99 })),
))

// gpuStatus says in words whether a GPU works and takes guests.
func gpuStatus(g api.GPU) string {
	status := "healthy"
	if !g.Healthy {
		status = "unhealthy"
	}
	switch {
	case g.Drained:
		status += ",drained"
	case g.Draining:
		status += ",draining"
	case g.Cordoned:
		status += ",cordoned"
	}
	return status
}

// gpuColumnsOf returns the columns for these GPUs. Columns on hardware are included if one of them
// is hardware.
func gpuColumnsOf(gpus []api.GPU) []column[api.GPU] {
	if !slices.ContainsFunc(gpus, func(g api.GPU) bool { return g.Hardware != nil }) {
		return gpuColumns
	}
	return slices.Concat(gpuColumns, hardwareColumns)
}

var hardwareColumns = slices.Concat([]column[api.GPU]{
	optionalColumn("TEMPERATURE", inUnit("°C"), valueOf(1, func(h *api.Hardware) *float64 { return h.TemperatureCelsius })),
	optionalColumn("POWER", inUnit("W"), valueOf(1, func(h *api.Hardware) *float64 { return h.PowerWatts })),
	optionalColumn("MEMORY-USED", percent, func(g api.GPU) (float64, bool) {
		if g.Hardware == nil || g.Hardware.MemoryUsedBytes == nil || g.MemoryBytes == 0 {
			return 0, false
		}
		return float64(*g.Hardware.MemoryUsedBytes) / float64(g.MemoryBytes), true
	}),
	textColumn("XIDS", textOf(xids)),
}, inWide(
	optionalColumn("CLOCK", inUnit("MHz"), valueOf(1e6, func(h *api.Hardware) *float64 { return h.SMClockHertz })),
	textColumn("THROTTLED", textOf(func(h *api.Hardware) string { return strings.Join(h.Throttled, ",") })),
	textColumn("DRIVER", textOf(func(h *api.Hardware) string { return h.Driver })),
	textColumn("CUDA", textOf(func(h *api.Hardware) string { return h.CUDA })),
	textColumn("MIG", textOf(func(h *api.Hardware) string { return h.MIG })),
	textColumn("PCI", textOf(func(h *api.Hardware) string { return h.PCI })),
	textColumn("UUID", textOf(func(h *api.Hardware) string { return h.UUID })),
))

// xids formats the errors that the driver reported, and how often.
func xids(h *api.Hardware) string {
	var all []string
	for _, x := range h.Xids {
		all = append(all, fmt.Sprintf("%d×%d", x.Xid, x.Count))
	}
	return strings.Join(all, ",")
}

// textOf returns a function that returns a text of the driver's, or "".
func textOf(text func(*api.Hardware) string) func(api.GPU) string {
	return func(g api.GPU) string {
		if g.Hardware == nil {
			return ""
		}
		return text(g.Hardware)
	}
}

// valueOf returns a function that returns a value of the driver's in a unit, if there is one.
func valueOf(unit float64, value func(*api.Hardware) *float64) func(api.GPU) (float64, bool) {
	return func(g api.GPU) (float64, bool) {
		if g.Hardware == nil || value(g.Hardware) == nil {
			return 0, false
		}
		return *value(g.Hardware) / unit, true
	}
}

// inUnit returns a function that formats a number with its unit.
func inUnit(unit string) func(float64) string {
	return func(x float64) string { return fmt.Sprintf("%.0f %s", x, unit) }
}

// evictionTime returns a function that returns a time of evictions, if there were any.
func evictionTime(seconds func(api.GPU) float64) func(api.GPU) (float64, bool) {
	return func(g api.GPU) (float64, bool) { return seconds(g), g.Evictions.Count > 0 }
}
