package daemon

import (
	"slices"
	"strconv"

	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
)

// hardwareMetric is one time series of a GPU of NVIDIA's driver. A value that the driver does not
// report has no sample.
type hardwareMetric struct {
	*exposition.Family
	value func(*api.Hardware) *float64
}

func newHardwareMetric(name, help string, kind exposition.Kind, value func(*api.Hardware) *float64) hardwareMetric {
	return hardwareMetric{exposition.NewFamily(kind, "vgpud_gpu_"+name, help, gpuLabels...), value}
}

// asFloat returns a count as a metric's value.
func asFloat(n *uint64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

var hardwareMetrics = []hardwareMetric{
	newHardwareMetric("temperature_celsius", "The GPU's temperature, by its driver.", gauge, func(h *api.Hardware) *float64 { return h.TemperatureCelsius }),
	newHardwareMetric("power_watts", "The power that the GPU draws, by its driver.", gauge, func(h *api.Hardware) *float64 { return h.PowerWatts }),
	newHardwareMetric("power_limit_watts", "The power that the GPU may draw.", gauge, func(h *api.Hardware) *float64 { return h.PowerLimitWatts }),
	newHardwareMetric("sm_clock_hertz", "The clock of the GPU's SMs.", gauge, func(h *api.Hardware) *float64 { return h.SMClockHertz }),
	newHardwareMetric("memory_clock_hertz", "The clock of the GPU's memory.", gauge, func(h *api.Hardware) *float64 { return h.MemoryClockHertz }),
	newHardwareMetric("memory_used_bytes", "Memory of the GPU that is in use.", gauge, func(h *api.Hardware) *float64 { return asFloat(h.MemoryUsedBytes) }),
	newHardwareMetric("driver_busy_ratio", "The part of time lately in which a kernel was on the GPU, by its driver.", gauge, func(h *api.Hardware) *float64 { return h.BusyRatio }),
	newHardwareMetric("memory_busy_ratio", "The part of time lately in which the GPU's memory was accessed, by its driver.", gauge, func(h *api.Hardware) *float64 { return h.MemoryBusyRatio }),
	newHardwareMetric("ecc_corrected_errors_total", "Memory errors that were corrected, since the driver was loaded.", counter, func(h *api.Hardware) *float64 { return asFloat(h.ECCCorrected) }),
	newHardwareMetric("ecc_uncorrected_errors_total", "Memory errors that were not corrected, since the driver was loaded.", counter, func(h *api.Hardware) *float64 { return asFloat(h.ECCUncorrected) }),
}

var (
	gpuXids      = exposition.NewFamily(counter, "vgpud_gpu_xid_errors_total", "Errors of the GPU that the driver reported since the daemon started, by Xid.", "gpu", "xid")
	gpuThrottled = exposition.NewFamily(gauge, "vgpud_gpu_throttled", "Whether the GPU's clocks are low for a reason other than idleness.", "gpu", "reason")
	gpuHardware  = exposition.NewFamily(gauge, "vgpud_gpu_hardware_info", "The GPU's names and modes, by its driver; always 1.", "gpu", "uuid", "pci", "driver", "cuda", "mig", "compute_mode", "persistence")
)

// collectHardware collects the series that only a driver knows. A GPU in software has none.
func collectHardware(to exposition.Sink, gpus []api.GPU) {
	type card struct {
		*api.Hardware
		gpu string
	}
	var cards []card
	for _, g := range gpus {
		if h := g.Hardware; h != nil {
			cards = append(cards, card{h, g.Name})
			to.Sample(gpuHardware, exposition.With(g.Name, h.UUID, h.PCI, h.Driver, h.CUDA, h.MIG, h.ComputeMode, h.Persistence), 1)
		}
	}
	for _, m := range hardwareMetrics {
		for _, c := range cards {
			if v := m.value(c.Hardware); v != nil {
				to.Sample(m.Family, exposition.With(c.gpu), *v)
			}
		}
	}
	for _, c := range cards {
		for _, x := range c.Xids {
			to.Sample(gpuXids, exposition.With(c.gpu, strconv.FormatUint(x.Xid, 10)), float64(x.Count))
		}
	}
	for _, c := range cards {
		if c.TemperatureCelsius == nil && c.PowerWatts == nil {
			continue // there is no sample
		}
		for _, reason := range inventory.ThrottleReasons {
			to.Sample(gpuThrottled, exposition.With(c.gpu, reason), boolValue(slices.Contains(c.Throttled, reason)))
		}
	}
}
