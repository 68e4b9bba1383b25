package main

import "vgpud/mediator/api"

func eventKernelName(k api.EventKernel) string { return k.Name() }

// eventKernelTable prints event kernels.
var eventKernelTable = table[api.EventKernel]{columns: func([]api.EventKernel) []column[api.EventKernel] { return eventKernelColumns }, name: eventKernelName}

var eventKernelColumns = append([]column[api.EventKernel]{
	textColumn("NAME", eventKernelName),
	textColumn("KERNEL", func(k api.EventKernel) string { return k.Kernel }),
	textColumn("TIER", func(k api.EventKernel) string { return k.Tier }),
	textColumn("STATE", func(k api.EventKernel) string {
		if k.Resident {
			return "resident"
		}
		return "parked"
	}),
	countColumn("EVENTS", func(k api.EventKernel) uint64 { return k.Events }),
	countColumn("DROPPED", func(k api.EventKernel) uint64 { return k.Dropped }),
	numberColumn("P50", wanted, func(k api.EventKernel) float64 { return k.P50Seconds }),
	numberColumn("P99", wanted, func(k api.EventKernel) float64 { return k.P99Seconds }),
}, inWide(
	textColumn("REASON", func(k api.EventKernel) string { return k.Reason }),
	countColumn("STRAY", func(k api.EventKernel) uint64 { return k.Stray }),
	countColumn("CONTEXT", func(k api.EventKernel) int { return k.Context }),
	textColumn("GPU", func(k api.EventKernel) string { return k.GPU }),
	textColumn("DOMAIN", func(k api.EventKernel) string { return k.Domain }),
)...)
