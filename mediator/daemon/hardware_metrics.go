package daemon

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/gpu/nvidia/inventory"
	"vgpud/mediator/api"
)

// hardwareMetric is one time series of a GPU of NVIDIA's driver. A value that the driver does not
// report has no sample.
type hardwareMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*api.Hardware) *float64
}

func newHardwareMetric(name, help string, kind prometheus.ValueType, value func(*api.Hardware) *float64) hardwareMetric {
	return hardwareMetric{prometheus.NewDesc("vgpud_gpu_"+name, help, gpuLabels, nil), kind, value}
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
	gpuXids      = prometheus.NewDesc("vgpud_gpu_xid_errors_total", "Errors of the GPU that the driver reported since the daemon started, by Xid.", []string{"gpu", "xid"}, nil)
	gpuThrottled = prometheus.NewDesc("vgpud_gpu_throttled", "Whether the GPU's clocks are low for a reason other than idleness.", []string{"gpu", "reason"}, nil)
	gpuHardware  = prometheus.NewDesc("vgpud_gpu_hardware_info", "The GPU's names and modes, by its driver; always 1.", []string{"gpu", "uuid", "pci", "driver", "cuda", "mig", "compute_mode", "persistence"}, nil)
)

func describeHardware(ch chan<- *prometheus.Desc) {
	ch <- gpuXids
	ch <- gpuThrottled
	ch <- gpuHardware
	for _, m := range hardwareMetrics {
		ch <- m.desc
	}
}

// collectHardware collects the metrics of one GPU. A GPU in software has none.
func collectHardware(ch chan<- prometheus.Metric, gpu string, h *api.Hardware) {
	if h == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(gpuHardware, gauge, 1, gpu, h.UUID, h.PCI, h.Driver, h.CUDA, h.MIG, h.ComputeMode, h.Persistence)
	for _, m := range hardwareMetrics {
		if v := m.value(h); v != nil {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, *v, gpu)
		}
	}
	for _, x := range h.Xids {
		ch <- prometheus.MustNewConstMetric(gpuXids, counter, float64(x.Count), gpu, strconv.FormatUint(x.Xid, 10))
	}
	if h.TemperatureCelsius == nil && h.PowerWatts == nil {
		return // there is no sample
	}
	for _, reason := range inventory.ThrottleReasons {
		ch <- prometheus.MustNewConstMetric(gpuThrottled, gauge, boolValue(slices.Contains(h.Throttled, reason)), gpu, reason)
	}
}
