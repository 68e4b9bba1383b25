package mediator

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/mediator/api"
)

// collector gives Prometheus what the API gives others. Labels: gpu, vm and
// domain, the libvirt domain's name; the guest's where it is no domain's.
type collector struct{ host api.Host }

// metric is one time series a guest or a GPU.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(T) float64
}

var (
	vmLabels  = []string{"gpu", "vm", "domain"}
	gpuLabels = []string{"gpu"}
)

func vmMetric(name, help string, kind prometheus.ValueType, value func(api.VM) float64) metric[api.VM] {
	return metric[api.VM]{prometheus.NewDesc("vgpud_vm_"+name, help, vmLabels, nil), kind, value}
}

func gpuMetric(name, help string, kind prometheus.ValueType, value func(api.GPU) float64) metric[api.GPU] {
	return metric[api.GPU]{prometheus.NewDesc("vgpud_gpu_"+name, help, gpuLabels, nil), kind, value}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

var vmMetrics = []metric[api.VM]{
	vmMetric("gpu_seconds_total", "Compute time that the guest used, by accounting.", counter, func(v api.VM) float64 { return v.GPUSeconds }),
	vmMetric("share_ratio", "The guest's part of the compute time that all guests used lately.", gauge, func(v api.VM) float64 { return v.Share }),
	vmMetric("entitled_ratio", "What the guest's weight, cap and guarantee entitle it to among the active guests.", gauge, func(v api.VM) float64 { return v.Entitled }),
	vmMetric("weight", "The guest's weight.", gauge, func(v api.VM) float64 { return v.Weight }),
	vmMetric("cap_ratio", "The part of the GPU's time that the guest never gets more than; 1 without a cap.", gauge, func(v api.VM) float64 { return cmp.Or(v.Cap, 1) }),
	vmMetric("guarantee_ratio", "The part of the GPU's time that the guest gets while it has work; 0 without a guarantee.", gauge, func(v api.VM) float64 { return v.Guarantee }),
	vmMetric("suspensions_total", "Times the guest's channels were held.", counter, func(v api.VM) float64 { return float64(v.Suspensions) }),
	vmMetric("suspended_seconds_total", "Time the guest's channels were held.", counter, func(v api.VM) float64 { return v.SuspendedSeconds }),
	vmMetric("suspended", "Whether the guest's channels are held now.", gauge, func(v api.VM) float64 { return truth(v.Suspended) }),
	vmMetric("attached", "Whether a VMM is connected.", gauge, func(v api.VM) float64 { return truth(v.Attached) }),
	vmMetric("kernels_total", "Kernels that ran to their end.", counter, func(v api.VM) float64 { return float64(v.Kernels) }),
	vmMetric("errors_total", "Commands that failed.", counter, func(v api.VM) float64 { return float64(v.Errors) }),
	vmMetric("copied_bytes_total", "Bytes copied to, from and on the GPU.", counter, func(v api.VM) float64 { return float64(v.CopiedBytes) }),
	vmMetric("commands_total", "Commands fetched from the guest's rings.", counter, func(v api.VM) float64 { return float64(v.Commands) }),
	vmMetric("doorbells_total", "Doorbells that the guest rang.", counter, func(v api.VM) float64 { return float64(v.Doorbells) }),
	vmMetric("contexts", "Contexts that the guest has.", gauge, func(v api.VM) float64 { return float64(v.Contexts) }),
}

var gpuMetrics = []metric[api.GPU]{
	gpuMetric("busy_seconds_total", "Time in which the GPU executed, estimated between polling phases.", counter, func(g api.GPU) float64 { return g.BusySeconds }),
	gpuMetric("idle_seconds_total", "Time in which the GPU executed nothing, likewise.", counter, func(g api.GPU) float64 { return g.IdleSeconds }),
	gpuMetric("switching_seconds_total", "Time in which the GPU saved and loaded contexts, likewise.", counter, func(g api.GPU) float64 { return g.SwitchingSeconds }),
	gpuMetric("switches_total", "Context switches, likewise.", counter, func(g api.GPU) float64 { return float64(g.Switches) }),
	gpuMetric("busy_ratio", "The part of time lately in which the GPU executed.", gauge, func(g api.GPU) float64 { return g.BusyRatio }),
	gpuMetric("rounds_total", "Rounds of watching and deciding.", counter, func(g api.GPU) float64 { return float64(g.Rounds) }),
	gpuMetric("accounting_cpu_seconds_total", "Processor time that watching the GPU took.", counter, func(g api.GPU) float64 { return g.AccountingCPUSeconds }),
	gpuMetric("watched_seconds_total", "Time in which the GPU was watched.", counter, func(g api.GPU) float64 { return g.WatchedSeconds }),
	gpuMetric("polls_total", "Readings of the GPU's status.", counter, func(g api.GPU) float64 { return float64(g.Polls) }),
	gpuMetric("polling_gaps_total", "Pairs of readings over 20 µs apart.", counter, func(g api.GPU) float64 { return float64(g.Gaps) }),
	gpuMetric("polling_gap_seconds_total", "Time in these gaps.", counter, func(g api.GPU) float64 { return g.GapSeconds }),
	gpuMetric("overruns_total", "Kernels that a soft GPU computed late.", counter, func(g api.GPU) float64 { return float64(g.Overruns) }),
	gpuMetric("overrun_seconds_total", "Time by which a soft GPU's time was stretched for them.", counter, func(g api.GPU) float64 { return g.OverrunSeconds }),
	gpuMetric("healthy", "Whether the GPU answers.", gauge, func(g api.GPU) float64 { return truth(g.Healthy) }),
	gpuMetric("real_time", "Whether the watching thread has real-time priority.", gauge, func(g api.GPU) float64 { return truth(g.RealTime) }),
}

var gpuInfo = prometheus.NewDesc("vgpud_gpu_info", "A GPU's names.", []string{"gpu", "kind", "model", "policy"}, nil)

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- gpuInfo
	for _, m := range vmMetrics {
		ch <- m.desc
	}
	for _, m := range gpuMetrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.host.VMs() {
		for _, m := range vmMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(v), v.GPU, v.Name, cmp.Or(v.Domain, v.Name))
		}
	}
	for _, g := range c.host.GPUs() {
		ch <- prometheus.MustNewConstMetric(gpuInfo, gauge, 1, g.Name, g.Kind, g.Model, g.Policy)
		for _, m := range gpuMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(g), g.Name)
		}
	}
}
