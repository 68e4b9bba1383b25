package main

import (
	"cmp"
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
	textColumn("EVICTION-P50", func(g api.GPU) string { return evictionTime(g, g.Evictions.P50) }),
	textColumn("EVICTION-P99", func(g api.GPU) string { return evictionTime(g, g.Evictions.P99) }),
))

// gpuStatus says in words whether a GPU works and takes guests.
func gpuStatus(g api.GPU) string {
	status := "healthy"
	if !g.Healthy {
		status = "unhealthy"
	}
	switch {
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
	textColumn("TEMPERATURE", valueOf("°C", 1, func(h *api.Hardware) *float64 { return h.TemperatureCelsius })),
	textColumn("POWER", valueOf("W", 1, func(h *api.Hardware) *float64 { return h.PowerWatts })),
	textColumn("MEMORY-USED", func(g api.GPU) string {
		if g.Hardware == nil || g.Hardware.MemoryUsedBytes == nil || g.MemoryBytes == 0 {
			return "-"
		}
		return percent(float64(*g.Hardware.MemoryUsedBytes) / float64(g.MemoryBytes))
	}),
	textColumn("XIDS", textOf(xids)),
}, inWide(
	textColumn("CLOCK", valueOf("MHz", 1e6, func(h *api.Hardware) *float64 { return h.SMClockHertz })),
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

// textOf returns a function that formats a text of the driver's, or "-".
func textOf(text func(*api.Hardware) string) func(api.GPU) string {
	return func(g api.GPU) string {
		if g.Hardware == nil {
			return "-"
		}
		return cmp.Or(text(g.Hardware), "-")
	}
}

// valueOf returns a function that formats a value of the driver's in a unit, or "-".
func valueOf(unit string, of float64, value func(*api.Hardware) *float64) func(api.GPU) string {
	return textOf(func(h *api.Hardware) string {
		v := value(h)
		if v == nil {
			return ""
		}
		return fmt.Sprintf("%.0f %s", *v/of, unit)
	})
}

// evictionTime formats the time of an eviction.
func evictionTime(g api.GPU, seconds float64) string {
	if g.Evictions.Count == 0 {
		return "-"
	}
	return brief(seconds)
}
