package daemon

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"vgpud/mediator/api"
	"vgpud/mediator/launchqueue"
)

// collector gives Prometheus what the API shows. Labels are gpu, vm and domain: the libvirt
// domain's name, or the guest's if it belongs to no domain.
type collector struct{ host api.Host }

// metric is one time series for each guest or GPU.
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

func boolValue(b bool) float64 {
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
	vmMetric("suspensions_total", "Times the guest's channels were suspended.", counter, func(v api.VM) float64 { return float64(v.Suspensions) }),
	vmMetric("suspended_seconds_total", "Time for which the guest's channels were suspended.", counter, func(v api.VM) float64 { return v.SuspendedSeconds }),
	vmMetric("suspended", "Whether the guest's channels are suspended now.", gauge, func(v api.VM) float64 { return boolValue(v.Suspended) }),
	vmMetric("attached", "Whether a VMM is connected.", gauge, func(v api.VM) float64 { return boolValue(v.Attached) }),
	vmMetric("kernels_total", "Kernels that ran to their end.", counter, func(v api.VM) float64 { return float64(v.Kernels) }),
	vmMetric("errors_total", "Commands that failed.", counter, func(v api.VM) float64 { return float64(v.Errors) }),
	vmMetric("copied_bytes_total", "Bytes copied to, from and on the GPU.", counter, func(v api.VM) float64 { return float64(v.CopiedBytes) }),
	vmMetric("commands_total", "Commands fetched from the guest's rings.", counter, func(v api.VM) float64 { return float64(v.Commands) }),
	vmMetric("doorbells_total", "Doorbells that the guest rang.", counter, func(v api.VM) float64 { return float64(v.Doorbells) }),
	vmMetric("contexts", "Contexts that the guest has.", gauge, func(v api.VM) float64 { return float64(v.Contexts) }),
	vmMetric("priority_ceiling", "The highest priority that the guest's launches may have.", gauge, func(v api.VM) float64 { return float64(v.PriorityCeiling) }),
	vmMetric("evictions_total", "Times a kernel of the guest was taken off the GPU with work undone.", counter, func(v api.VM) float64 { return float64(v.Preemption.Evictions) }),
	vmMetric("eviction_seconds_total", "Time that these took, from when each kernel was told to leave.", counter, func(v api.VM) float64 { return v.Preemption.EvictionSeconds }),
	vmMetric("evictions_caused_total", "Evictions of any kernel for the guest's sake.", counter, func(v api.VM) float64 { return float64(v.Preemption.Caused) }),
	vmMetric("preemption_charged_seconds_total", "What these cost, which the guest is charged.", counter, func(v api.VM) float64 { return v.Preemption.ChargedSeconds }),
	vmMetric("liars_total", "Kernels that can be evicted and did not leave when told.", counter, func(v api.VM) float64 { return float64(v.Preemption.Unresponsive) }),
	vmMetric("ignored_priorities_total", "Launches that asked for a priority above the ceiling.", counter, func(v api.VM) float64 { return float64(v.Preemption.IgnoredPriorities) }),
	vmMetric("predicted_launches_total", "Launches that ended and whose duration was predicted.", counter, func(v api.VM) float64 { return float64(v.Preemption.Prediction.Launches) }),
	vmMetric("predicted_seconds_total", "Time that these were expected to take.", counter, func(v api.VM) float64 { return v.Preemption.Prediction.PredictedSeconds }),
	vmMetric("measured_seconds_total", "Time that these took.", counter, func(v api.VM) float64 { return v.Preemption.Prediction.MeasuredSeconds }),
	vmMetric("controlled_contexts", "Contexts of the guest that can be taken off the GPU in mid-kernel.", gauge, func(v api.VM) float64 { return float64(v.Control.Contexts) }),
	vmMetric("disabled_contexts", "Contexts of the guest that are off the GPU now.", gauge, func(v api.VM) float64 { return float64(v.Control.Disabled) }),
	vmMetric("disables_total", "Times a context was taken off the GPU.", counter, func(v api.VM) float64 { return float64(v.Control.Disables) }),
	vmMetric("disable_seconds_total", "Time that the GPU's driver took to disable contexts.", counter, func(v api.VM) float64 { return v.Control.DisableSeconds }),
	vmMetric("enable_seconds_total", "Time that the GPU's driver took to enable contexts.", counter, func(v api.VM) float64 { return v.Control.EnableSeconds }),
	vmMetric("disabled_seconds_total", "Time for which contexts were off the GPU that are enabled again.", counter, func(v api.VM) float64 { return v.Control.DisabledSeconds }),
	vmMetric("time_slice_seconds", "How long a context of the guest runs before another's turn; 0 is the driver's own choice.", gauge, func(v api.VM) float64 { return v.Control.TimeSliceSeconds }),
	vmMetric("time_slices_set_total", "Times that a time slice was set.", counter, func(v api.VM) float64 { return float64(v.Control.TimeSlices) }),
	vmMetric("control_errors_total", "Calls of the GPU's driver for the guest's contexts that failed.", counter, func(v api.VM) float64 { return float64(v.Control.Errors) }),
	vmMetric("prediction_error_ratio", "The mean difference of predicted and measured durations, each as a part of the measured one.", gauge, func(v api.VM) float64 { return v.Preemption.Prediction.ErrorRatio }),
}

var gpuMetrics = []metric[api.GPU]{
	gpuMetric("busy_seconds_total", "Time in which the GPU executed, estimated between polling phases.", counter, func(g api.GPU) float64 { return g.BusySeconds }),
	gpuMetric("idle_seconds_total", "Time in which the GPU executed nothing, estimated between polling phases.", counter, func(g api.GPU) float64 { return g.IdleSeconds }),
	gpuMetric("switching_seconds_total", "Time in which the GPU saved and loaded contexts, estimated between polling phases.", counter, func(g api.GPU) float64 { return g.SwitchingSeconds }),
	gpuMetric("switches_total", "Context switches, estimated between polling phases.", counter, func(g api.GPU) float64 { return float64(g.Switches) }),
	gpuMetric("busy_ratio", "The part of time lately in which the GPU executed.", gauge, func(g api.GPU) float64 { return g.BusyRatio }),
	gpuMetric("rounds_total", "Rounds of watching and deciding.", counter, func(g api.GPU) float64 { return float64(g.Rounds) }),
	gpuMetric("accounting_cpu_seconds_total", "Processor time that watching the GPU took.", counter, func(g api.GPU) float64 { return g.AccountingCPUSeconds }),
	gpuMetric("watched_seconds_total", "Time in which the GPU was watched.", counter, func(g api.GPU) float64 { return g.WatchedSeconds }),
	gpuMetric("polls_total", "Readings of the GPU's status.", counter, func(g api.GPU) float64 { return float64(g.Polls) }),
	gpuMetric("records_lost_total", "Times that the GPU's records of context switches were lost.", counter, func(g api.GPU) float64 { return float64(g.RecordsLost) }),
	gpuMetric("polling_gaps_total", "Pairs of readings over 20 µs apart.", counter, func(g api.GPU) float64 { return float64(g.Gaps) }),
	gpuMetric("polling_gap_seconds_total", "Time in these gaps.", counter, func(g api.GPU) float64 { return g.GapSeconds }),
	gpuMetric("overruns_total", "Kernels that a soft GPU computed late.", counter, func(g api.GPU) float64 { return float64(g.Overruns) }),
	gpuMetric("overrun_seconds_total", "Time by which a soft GPU's time was stretched for them.", counter, func(g api.GPU) float64 { return g.OverrunSeconds }),
	gpuMetric("healthy", "Whether the GPU answers.", gauge, func(g api.GPU) float64 { return boolValue(g.Healthy) }),
	gpuMetric("real_time", "Whether the watching thread has real-time priority.", gauge, func(g api.GPU) float64 { return boolValue(g.RealTime) }),
}

// launchStates are the values of the label state of a guest's launches.
var launchStates = []struct {
	name  string
	count func(api.Launches) int
}{
	{"waiting", func(l api.Launches) int { return l.Waiting }},
	{"running", func(l api.Launches) int { return l.Running }},
	{"leaving", func(l api.Launches) int { return l.Leaving }},
}

var (
	vmSilent      = prometheus.NewDesc("vgpud_vm_silent", "Whether the guest, which an earlier daemon created, does not answer and is not governed.", vmLabels, nil)
	vmLaunches    = prometheus.NewDesc("vgpud_vm_launches", "Launches that wait for their turn, run, and are to leave the GPU.", append(vmLabels[:len(vmLabels):len(vmLabels)], "state"), nil)
	gpuEvictions  = prometheus.NewDesc("vgpud_gpu_eviction_seconds", "Time from when a kernel was told to leave the GPU until its last block had left.", gpuLabels, nil)
	gpuPrediction = prometheus.NewDesc("vgpud_gpu_prediction_error_ratio", "The mean difference of launches' predicted and measured durations, each as a part of the measured one.", gpuLabels, nil)
)

// evictionUses are the values of the label spatial of evictions.
var evictionUses = []struct {
	name  string
	count func(api.Asked) uint64
}{
	{"useful", func(a api.Asked) uint64 { return a.SomeSMs }},
	{"takes-turns", func(a api.Asked) uint64 { return a.TakesTurns }},
	{"needs-all", func(a api.Asked) uint64 { return a.NeedsAll }},
	{"unknown", func(a api.Asked) uint64 { return a.Unknown }},
	{"whole", func(a api.Asked) uint64 { return a.Whole }},
}

var gpuAsked = prometheus.NewDesc("vgpud_gpu_evictions_asked_total", "Evictions asked for, by whether leaving some SMs was enough, or why it was not.", []string{"gpu", "spatial"}, nil)

var gpuInfo = prometheus.NewDesc("vgpud_gpu_info", "A GPU's names.", []string{"gpu", "kind", "model", "policy"}, nil)

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- gpuInfo
	ch <- vmSilent
	ch <- vmLaunches
	ch <- gpuEvictions
	ch <- gpuAsked
	ch <- gpuPrediction
	describeHardware(ch)
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
		ch <- prometheus.MustNewConstMetric(vmSilent, gauge, boolValue(v.Silent != ""), v.GPU, v.Name, cmp.Or(v.Domain, v.Name))
		if v.Silent != "" {
			continue // its counters would go back
		}
		for _, m := range vmMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(v), v.GPU, v.Name, cmp.Or(v.Domain, v.Name))
		}
		for _, s := range launchStates {
			ch <- prometheus.MustNewConstMetric(vmLaunches, gauge, float64(s.count(v.Preemption.Launches)), v.GPU, v.Name, cmp.Or(v.Domain, v.Name), s.name)
		}
	}
	for _, g := range c.host.GPUs() {
		ch <- prometheus.MustNewConstMetric(gpuInfo, gauge, 1, g.Name, g.Kind, g.Model, g.Policy)
		for _, m := range gpuMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(g), g.Name)
		}
		buckets := make(map[float64]uint64, len(launchqueue.EvictionBounds))
		for _, b := range launchqueue.EvictionBounds {
			buckets[b.Seconds()] = 0 // an empty bucket is shown too
		}
		for _, b := range g.Evictions.Buckets {
			buckets[b.UpTo] = b.Count
		}
		ch <- prometheus.MustNewConstHistogram(gpuEvictions, g.Evictions.Count, g.Evictions.Seconds, buckets, g.Name)
		for _, a := range evictionUses {
			ch <- prometheus.MustNewConstMetric(gpuAsked, counter, float64(a.count(g.Evictions.Asked)), g.Name, a.name)
		}
		ch <- prometheus.MustNewConstMetric(gpuPrediction, gauge, g.Prediction.ErrorRatio, g.Name)
		collectHardware(ch, g.Name, g.Hardware)
	}
}
