package daemon

import (
	"cmp"
	"runtime"
	"slices"

	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
	"vgpud/mediator/launchqueue"
)

// metric is one time series for each guest or GPU.
type metric[T any] struct {
	*exposition.Family
	value func(*T) float64
}

var (
	vmLabels  = []string{"gpu", "vm", "domain"}
	gpuLabels = []string{"gpu"}
)

func vmMetric(name, help string, kind exposition.Kind, value func(*api.VM) float64) metric[api.VM] {
	return metric[api.VM]{exposition.NewFamily(kind, "vgpud_vm_"+name, help, vmLabels...), value}
}

func gpuMetric(name, help string, kind exposition.Kind, value func(*api.GPU) float64) metric[api.GPU] {
	return metric[api.GPU]{exposition.NewFamily(kind, "vgpud_gpu_"+name, help, gpuLabels...), value}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

const (
	counter = exposition.Counter
	gauge   = exposition.Gauge
)

// placedMetrics are of each GPU where a guest is that floats. Others have one sample, of their GPU.
var placedMetrics = []placed{
	placedMetric("gpu_seconds_total", "Compute time that the guest used, by accounting; of a guest that floats, of each GPU.", counter,
		func(p *api.OnGPU) float64 { return p.GPUSeconds }, func(v *api.VM) float64 { return v.GPUSeconds }),
	placedMetric("busy_ratio", "The part of the GPU's time that the guest used lately; of a guest that floats, of each GPU.", gauge,
		func(p *api.OnGPU) float64 { return p.BusyRatio }, func(v *api.VM) float64 { return v.BusyRatio }),
	placedMetric("memory_used_bytes", "GPU memory that the guest has in use; of a guest that floats, of each GPU.", gauge,
		func(p *api.OnGPU) float64 { return float64(p.MemoryUsedBytes) }, func(v *api.VM) float64 { return float64(v.MemoryUsedBytes) }),
	placedMetric("contexts", "Contexts that the guest has; of a guest that floats, on each GPU.", gauge,
		func(p *api.OnGPU) float64 { return float64(p.Contexts) }, func(v *api.VM) float64 { return float64(v.Contexts) }),
}

// placed is a metric of guests with its value on a GPU of one that floats, and of one that doesn't.
type placed struct {
	metric[api.OnGPU]
	whole func(*api.VM) float64
}

func placedMetric(name, help string, kind exposition.Kind, value func(*api.OnGPU) float64, whole func(*api.VM) float64) placed {
	return placed{metric[api.OnGPU]{exposition.NewFamily(kind, "vgpud_vm_"+name, help, vmLabels...), value}, whole}
}

// residentKernels counts the guest's event kernels that are on the GPU.
func residentKernels(v *api.VM) (n int) {
	for i := range v.EventKernels {
		if v.EventKernels[i].Resident {
			n++
		}
	}
	return n
}

var vmMetrics = []metric[api.VM]{
	vmMetric("share_ratio", "The guest's part of the compute time that all guests used lately; compare it with the busy ratio, which is of the GPU's time.", gauge, func(v *api.VM) float64 { return v.Share }),
	vmMetric("entitled_ratio", "The part of the GPU to which the guest's weight, cap and guarantee entitle it among the active guests.", gauge, func(v *api.VM) float64 { return v.Entitled }),
	vmMetric("lost", "Whether the guest's virtual GPU was lost; its counters stay as they were.", gauge, func(v *api.VM) float64 { return boolValue(v.Lost != "") }),
	vmMetric("memory_limit_bytes", "GPU memory that the guest may use; 0 without a limit.", gauge, func(v *api.VM) float64 { return float64(v.MemoryLimitBytes) }),
	vmMetric("kernel_time_limit_seconds", "GPU time after which a kernel of the guest is ended; 0 without a limit.", gauge, func(v *api.VM) float64 { return v.KernelTimeLimit.Seconds() }),
	vmMetric("active", "Whether the guest had work in the last round.", gauge, func(v *api.VM) float64 { return boolValue(v.Active) }),
	vmMetric("weight", "The guest's weight.", gauge, func(v *api.VM) float64 { return v.Weight }),
	vmMetric("cap_ratio", "The part of the GPU's time that the guest never gets more than; 1 without a cap.", gauge, func(v *api.VM) float64 { return cmp.Or(v.Cap, 1) }),
	vmMetric("guarantee_ratio", "The part of the GPU's time that the guest gets while it has work; 0 without a guarantee.", gauge, func(v *api.VM) float64 { return v.Guarantee }),
	vmMetric("budget_used_seconds", "GPU time that counts for the guest's budget in the present period; 0 without a budget.", gauge, func(v *api.VM) float64 { return budgetOf(v.Budget).Used.Seconds() }),
	vmMetric("budget_soft_seconds", "The soft limit of the guest's budget; 0 without one.", gauge, func(v *api.VM) float64 { return budgetOf(v.Budget).Budget.Soft.Seconds() }),
	vmMetric("budget_hard_seconds", "The hard limit of the guest's budget; 0 without one.", gauge, func(v *api.VM) float64 { return budgetOf(v.Budget).Budget.Hard.Seconds() }),
	vmMetric("budget_level", "How much of the guest's budget is used: 0 within its limits, 1 over the soft one, 2 over the hard one.", gauge, func(v *api.VM) float64 { return float64(budgetOf(v.Budget).Level) }),
	vmMetric("budget_sanction", "The state of the guest by its budget and its owner's: 0 nothing, 1 it is throttled, 2 it is held.", gauge, func(v *api.VM) float64 { return float64(v.Sanction) }),
	vmMetric("suspensions_total", "Times the guest's channels were suspended.", counter, func(v *api.VM) float64 { return float64(v.Suspensions) }),
	vmMetric("suspended_seconds_total", "Time for which the guest's channels were suspended.", counter, func(v *api.VM) float64 { return v.SuspendedSeconds }),
	vmMetric("unaccounted_seconds_total", "The most compute time beyond the recorded GPU time that the guest can have used while no daemon ran.", counter, func(v *api.VM) float64 { return v.UnaccountedSeconds }),
	vmMetric("suspended", "Whether the guest's channels are suspended now.", gauge, func(v *api.VM) float64 { return boolValue(v.Suspended) }),
	vmMetric("attached", "Whether a VMM is connected.", gauge, func(v *api.VM) float64 { return boolValue(v.Attached) }),
	vmMetric("kernels_total", "Kernels that ran to their end.", counter, func(v *api.VM) float64 { return float64(v.Kernels) }),
	vmMetric("errors_total", "Commands that failed.", counter, func(v *api.VM) float64 { return float64(v.Errors) }),
	vmMetric("copied_bytes_total", "Bytes copied to, from and on the GPU.", counter, func(v *api.VM) float64 { return float64(v.CopiedBytes) }),
	vmMetric("commands_total", "Commands fetched from the guest's rings.", counter, func(v *api.VM) float64 { return float64(v.Commands) }),
	vmMetric("doorbells_total", "Doorbells that the guest rang.", counter, func(v *api.VM) float64 { return float64(v.Doorbells) }),
	vmMetric("event_kernels", "Event kernels that the guest has registered.", gauge, func(v *api.VM) float64 { return float64(len(v.EventKernels)) }),
	vmMetric("event_kernels_resident", "Event kernels whose doorbells the GPU polls now.", gauge, func(v *api.VM) float64 { return float64(residentKernels(v)) }),
	vmMetric("events_total", "Events of event kernels that ran to their end.", counter, func(v *api.VM) float64 { return float64(v.Events) }),
	vmMetric("events_dropped_total", "Rings for event kernels that found no free entry.", counter, func(v *api.VM) float64 { return float64(v.EventsDropped) }),
	vmMetric("events_stray_total", "Rings on numbers that no event kernel had.", counter, func(v *api.VM) float64 { return float64(v.EventsStray) }),
	vmMetric("priority_ceiling", "The highest priority that the guest's launches may have, 0 to 15.", gauge, func(v *api.VM) float64 { return float64(v.PriorityCeiling) }),
	vmMetric("evictions_total", "Times a kernel of the guest was taken off the GPU with work undone.", counter, func(v *api.VM) float64 { return float64(v.Preemption.Evictions) }),
	vmMetric("eviction_seconds_total", "Time from when kernels of the guest were told to leave the GPU until they had left.", counter, func(v *api.VM) float64 { return v.Preemption.EvictionSeconds }),
	vmMetric("evictions_caused_total", "Evictions of any kernel for the guest's sake.", counter, func(v *api.VM) float64 { return float64(v.Preemption.Caused) }),
	vmMetric("preemption_charged_seconds_total", "Cost of the evictions for the guest's sake, which the guest is charged.", counter, func(v *api.VM) float64 { return v.Preemption.ChargedSeconds }),
	vmMetric("liars_total", "Kernels that were launched as preemptible and did not leave the GPU in time when told.", counter, func(v *api.VM) float64 { return float64(v.Preemption.Unresponsive) }),
	vmMetric("ignored_priorities_total", "Launches that asked for a priority above the ceiling.", counter, func(v *api.VM) float64 { return float64(v.Preemption.IgnoredPriorities) }),
	vmMetric("predicted_launches_total", "Launches that ended and whose duration was predicted.", counter, func(v *api.VM) float64 { return float64(v.Preemption.Prediction.Launches) }),
	vmMetric("predicted_seconds_total", "Time that launches with a predicted duration were expected to take.", counter, func(v *api.VM) float64 { return v.Preemption.Prediction.PredictedSeconds }),
	vmMetric("measured_seconds_total", "Time that launches with a predicted duration took.", counter, func(v *api.VM) float64 { return v.Preemption.Prediction.MeasuredSeconds }),
	vmMetric("controlled_contexts", "Contexts of the guest that can be taken off the GPU in mid-kernel.", gauge, func(v *api.VM) float64 { return float64(v.Control.Contexts) }),
	vmMetric("disabled_contexts", "Contexts of the guest that are off the GPU now.", gauge, func(v *api.VM) float64 { return float64(v.Control.Disabled) }),
	vmMetric("disables_total", "Times a context was taken off the GPU.", counter, func(v *api.VM) float64 { return float64(v.Control.Disables) }),
	vmMetric("disable_seconds_total", "Time that the GPU's driver took to disable contexts.", counter, func(v *api.VM) float64 { return v.Control.DisableSeconds }),
	vmMetric("enable_seconds_total", "Time that the GPU's driver took to enable contexts.", counter, func(v *api.VM) float64 { return v.Control.EnableSeconds }),
	vmMetric("disabled_seconds_total", "Time for which contexts were off the GPU that are enabled again.", counter, func(v *api.VM) float64 { return v.Control.DisabledSeconds }),
	vmMetric("time_slice_seconds", "How long a context of the guest runs before another's turn; 0 is the driver's own choice.", gauge, func(v *api.VM) float64 { return v.Control.TimeSliceSeconds }),
	vmMetric("time_slices_set_total", "Times that a time slice was set.", counter, func(v *api.VM) float64 { return float64(v.Control.TimeSlices) }),
	vmMetric("control_errors_total", "Calls of the GPU's driver for the guest's contexts that failed.", counter, func(v *api.VM) float64 { return float64(v.Control.Errors) }),
	vmMetric("prediction_error_ratio", "The mean difference of predicted and measured durations, each as a part of the measured one.", gauge, func(v *api.VM) float64 { return v.Preemption.Prediction.ErrorRatio }),
}

var gpuMetrics = []metric[api.GPU]{
	gpuMetric("busy_seconds_total", "Time in which the GPU executed, estimated between polling phases.", counter, func(g *api.GPU) float64 { return g.BusySeconds }),
	gpuMetric("idle_seconds_total", "Time in which the GPU executed nothing, estimated between polling phases.", counter, func(g *api.GPU) float64 { return g.IdleSeconds }),
	gpuMetric("switching_seconds_total", "Time in which the GPU saved and loaded contexts, estimated between polling phases.", counter, func(g *api.GPU) float64 { return g.SwitchingSeconds }),
	gpuMetric("switches_total", "Context switches, estimated between polling phases.", counter, func(g *api.GPU) float64 { return float64(g.Switches) }),
	gpuMetric("busy_ratio", "The part of time lately in which the GPU executed.", gauge, func(g *api.GPU) float64 { return g.BusyRatio }),
	gpuMetric("rounds_total", "Rounds of watching and deciding.", counter, func(g *api.GPU) float64 { return float64(g.Rounds) }),
	gpuMetric("accounting_cpu_seconds_total", "Processor time that watching the GPU took.", counter, func(g *api.GPU) float64 { return g.AccountingCPUSeconds }),
	gpuMetric("watched_seconds_total", "Time in which the GPU was watched.", counter, func(g *api.GPU) float64 { return g.WatchedSeconds }),
	gpuMetric("polls_total", "Readings of the GPU's status.", counter, func(g *api.GPU) float64 { return float64(g.Polls) }),
	gpuMetric("records_lost_total", "Times that records of context switches were lost; the time in between is charged by what guests' processes report.", counter, func(g *api.GPU) float64 { return float64(g.RecordsLost) }),
	gpuMetric("record_pauses_total", "Times that the recording of context switches was paused.", counter, func(g *api.GPU) float64 { return float64(g.RecordPauses) }),
	gpuMetric("record_paused", "Whether the recording of context switches is paused.", gauge, func(g *api.GPU) float64 { return boolValue(g.RecordPaused) }),
	gpuMetric("polling_gaps_total", "Pairs of readings of the GPU's status that were over 20 µs apart.", counter, func(g *api.GPU) float64 { return float64(g.Gaps) }),
	gpuMetric("polling_gap_seconds_total", "Time between readings of the GPU's status that were over 20 µs apart.", counter, func(g *api.GPU) float64 { return g.GapSeconds }),
	gpuMetric("overruns_total", "Kernels that a soft GPU computed late.", counter, func(g *api.GPU) float64 { return float64(g.Overruns) }),
	gpuMetric("overrun_seconds_total", "Time by which a soft GPU's time was stretched for kernels that it computed late.", counter, func(g *api.GPU) float64 { return g.OverrunSeconds }),
	gpuMetric("cordoned", "Whether no guest is created on the GPU, because an operator cordoned or drained it.", gauge, func(g *api.GPU) float64 { return boolValue(g.Cordoned) }),
	gpuMetric("draining", "Whether no guest gets a context on the GPU, because an operator drains it.", gauge, func(g *api.GPU) float64 { return boolValue(g.Draining) }),
	gpuMetric("lost_vms_total", "Guests whose virtual GPU was lost, because its process ended although nobody asked for that.", counter, func(g *api.GPU) float64 { return float64(g.LostVMs) }),
	gpuMetric("memory_bytes", "The GPU's memory.", gauge, func(g *api.GPU) float64 { return float64(g.MemoryBytes) }),
	gpuMetric("memory_spare_bytes", "GPU memory that is lent to spare executors, until somebody needs it.", gauge, func(g *api.GPU) float64 { return float64(g.SpareBytes) }),
	gpuMetric("memory_granted_bytes", "GPU memory that was granted to contexts that float.", gauge, func(g *api.GPU) float64 { return float64(g.GrantedBytes) }),
	gpuMetric("vms", "Guests on the GPU.", gauge, func(g *api.GPU) float64 { return float64(g.VMs) }),
	gpuMetric("healthy", "Whether the GPU answers.", gauge, func(g *api.GPU) float64 { return boolValue(g.Healthy) }),
	gpuMetric("real_time", "Whether the thread that polls the GPU has real-time priority; 0 for sources that poll nothing.", gauge, func(g *api.GPU) float64 { return boolValue(g.RealTime) }),
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
	vmSilent      = exposition.NewFamily(gauge, "vgpud_vm_silent", "Whether the guest, which an earlier daemon created, does not answer; it is suspended, and its other series are missing until it answers.", vmLabels...)
	vmLaunches    = exposition.NewFamily(gauge, "vgpud_vm_launches", "Launches that wait for their turn, run, and are to leave the GPU.", "gpu", "vm", "domain", "state")
	vmErrors      = exposition.NewFamily(counter, "vgpud_vm_errors_by_reason_total", "Commands that failed, by reason: request (it can't be carried out as it is), memory (used up, or the guest's limit), module (not one, or not for this GPU), fault (of a kernel), time-limit (of a kernel), canceled (channel closed or context reset), other (the host failed).", "gpu", "vm", "domain", "reason")
	vmEvictions   = exposition.NewFamily(exposition.Histogram, "vgpud_vm_eviction_seconds", "Time from when a kernel of the guest was told to leave the GPU until its last block had left, since the daemon started.", vmLabels...)
	gpuEvictions  = exposition.NewFamily(exposition.Histogram, "vgpud_gpu_eviction_seconds", "Time from when a kernel was told to leave the GPU until its last block had left.", gpuLabels...)
	gpuPrediction = exposition.NewFamily(gauge, "vgpud_gpu_prediction_error_ratio", "The mean difference of launches' predicted and measured durations, each as a part of the measured one.", gpuLabels...)
)

// errorReasons are the values of the label reason of a guest's errors.
var errorReasons = []struct {
	name  string
	count func(*api.ErrorReasons) uint64
}{
	{"request", func(r *api.ErrorReasons) uint64 { return r.Request }},
	{"memory", func(r *api.ErrorReasons) uint64 { return r.Memory }},
	{"module", func(r *api.ErrorReasons) uint64 { return r.Module }},
	{"fault", func(r *api.ErrorReasons) uint64 { return r.Fault }},
	{"time-limit", func(r *api.ErrorReasons) uint64 { return r.TimeLimit }},
	{"canceled", func(r *api.ErrorReasons) uint64 { return r.Canceled }},
	{"other", func(r *api.ErrorReasons) uint64 { return r.Other }},
}

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

var gpuAsked = exposition.NewFamily(counter, "vgpud_gpu_evictions_asked_total", "Evictions asked for, by label spatial: useful if leaving some SMs was enough, or else why it was not: takes-turns, needs-all, unknown, or whole if a part was not considered.", "gpu", "spatial")

var gpuInfo = exposition.NewFamily(gauge, "vgpud_gpu_info", "A GPU's kind, model and policy; always 1.", "gpu", "kind", "model", "policy")

var (
	vmInfo        = exposition.NewFamily(gauge, "vgpud_vm_info", "A guest's domain, and the owner and project that its usage is billed to; always 1.", "gpu", "vm", "domain", "domain_uuid", "owner", "project")
	vmBudget      = exposition.NewFamily(gauge, "vgpud_vm_budget_info", "The period of the guest's budget: day, week or month, or empty without a budget; always 1.", "gpu", "vm", "domain", "period")
	gpuAccounting = exposition.NewFamily(gauge, "vgpud_gpu_accounting_info", "The source by which the GPU's use is accounted: registers, events or launches; always 1.", "gpu", "source")
	buildInfo     = exposition.NewFamily(gauge, "vgpud_build_info", "The daemon's version, and Go's; always 1.", "version", "goversion")
	daemonHealthy = exposition.NewFamily(gauge, "vgpud_healthy", "Whether the daemon knows of no problem; /-/healthy lists what it knows.")
)

// source is what the API shows, for Prometheus. Labels are gpu, vm and domain: the libvirt domain's
// name, or empty if the guest belongs to no domain.
type source struct{ host api.Host }

// Families implements [exposition.Source].
func (source) Families() []*exposition.Family {
	all := []*exposition.Family{
		buildInfo, daemonHealthy, vmSilent, vmInfo, vmBudget, vmErrors, vmEvictions, vmLaunches,
		gpuInfo, gpuAccounting, gpuEvictions, gpuAsked, gpuPrediction, gpuHardware, gpuXids, gpuThrottled,
		taskStates, taskMoves, taskWaits,
	}
	for _, m := range placedMetrics {
		all = append(all, m.Family)
	}
	for _, m := range vmMetrics {
		all = append(all, m.Family)
	}
	for _, m := range ownerMetrics {
		all = append(all, m.Family)
	}
	for _, m := range gpuMetrics {
		all = append(all, m.Family)
	}
	for _, m := range hardwareMetrics {
		all = append(all, m.Family)
	}
	return all
}

// Collect implements [exposition.Source].
func (s source) Collect(to exposition.Sink) {
	health := s.host.Health()
	to.Sample(buildInfo, exposition.With(health.Version, runtime.Version()), 1)
	to.Sample(daemonHealthy, exposition.With(), boolValue(health.Healthy))
	vms := s.host.VMs()
	collectVMs(to, vms)
	collectOwners(to, vms)
	collectTasks(to, s.host.Tasks())
	collectGPUs(to, s.host.GPUs())
}

// collectVMs collects guests' series.
func collectVMs(to exposition.Sink, vms []api.VM) {
	type guest struct {
		*api.VM
		labels *exposition.Labels
	}
	answering := make([]guest, 0, len(vms))
	for i := range vms {
		g := guest{&vms[i], exposition.With(vms[i].GPU, vms[i].Name, vms[i].Domain)}
		to.Sample(vmSilent, g.labels, boolValue(g.Silent != ""))
		if g.Silent == "" { // else its counters would go back
			answering = append(answering, g)
		}
	}
	for _, g := range answering {
		to.Sample(vmInfo, exposition.With(g.GPU, g.Name, g.Domain, g.DomainUUID, g.Owner, g.Project), 1)
	}
	for _, g := range answering {
		period := ""
		if b := g.Budget; b != nil {
			period = b.Budget.Period.String()
		}
		to.Sample(vmBudget, exposition.With(g.GPU, g.Name, g.Domain, period), 1)
	}
	for _, m := range placedMetrics {
		for _, g := range answering {
			if len(g.OnGPUs) == 0 {
				to.Sample(m.Family, g.labels, m.whole(g.VM))
			}
			for i := range g.OnGPUs {
				p := &g.OnGPUs[i]
				to.Sample(m.Family, exposition.With(p.GPU, g.Name, g.Domain), m.value(p))
			}
		}
	}
	for _, m := range vmMetrics {
		for _, g := range answering {
			to.Sample(m.Family, g.labels, m.value(g.VM))
		}
	}
	for _, g := range answering {
		for _, r := range errorReasons {
			to.Sample(vmErrors, exposition.With(g.GPU, g.Name, g.Domain, r.name), float64(r.count(&g.ErrorReasons)))
		}
	}
	for _, g := range answering {
		to.Distribution(vmEvictions, g.labels, evictionTimes(&g.Preemption.EvictionTimes))
	}
	for _, g := range answering {
		for _, s := range launchStates {
			to.Sample(vmLaunches, exposition.With(g.GPU, g.Name, g.Domain, s.name), float64(s.count(g.Preemption.Launches)))
		}
	}
}

// collectGPUs collects GPUs' series.
func collectGPUs(to exposition.Sink, gpus []api.GPU) {
	labels := make([]*exposition.Labels, len(gpus))
	for i, g := range gpus {
		labels[i] = exposition.With(g.Name)
		to.Sample(gpuInfo, exposition.With(g.Name, g.Kind, g.Model, g.Policy), 1)
	}
	for _, g := range gpus {
		to.Sample(gpuAccounting, exposition.With(g.Name, g.AccountingSource), 1)
	}
	for _, m := range gpuMetrics {
		for i := range gpus {
			to.Sample(m.Family, labels[i], m.value(&gpus[i]))
		}
	}
	for i, g := range gpus {
		to.Distribution(gpuEvictions, labels[i], evictionTimes(&api.Histogram{Count: g.Evictions.Count, Seconds: g.Evictions.Seconds, Buckets: g.Evictions.Buckets}))
	}
	for _, g := range gpus {
		for _, a := range evictionUses {
			to.Sample(gpuAsked, exposition.With(g.Name, a.name), float64(a.count(g.Evictions.Asked)))
		}
	}
	for i, g := range gpus {
		to.Sample(gpuPrediction, labels[i], g.Prediction.ErrorRatio)
	}
	collectHardware(to, gpus)
}

// evictionBounds are the upper bounds of histograms of evictions, in seconds.
var evictionBounds = func() (bounds []float64) {
	for _, b := range launchqueue.EvictionBounds {
		bounds = append(bounds, b.Seconds())
	}
	return bounds
}()

// noEvictions has the number 0 for each of evictionBounds.
var noEvictions = make([]uint64, len(evictionBounds))

// evictionTimes returns a histogram of evictions with all buckets, also the empty ones.
func evictionTimes(h *api.Histogram) exposition.Distribution {
	return distribution(h, evictionBounds, noEvictions)
}

// distribution returns a histogram with all of its buckets, also the empty ones. none has the number
// 0 for each of bounds.
func distribution(h *api.Histogram, bounds []float64, none []uint64) exposition.Distribution {
	d := exposition.Distribution{Bounds: bounds, UpTo: none, Count: h.Count, Sum: h.Seconds}
	if len(h.Buckets) == 0 {
		return d
	}
	d.UpTo = make([]uint64, len(bounds))
	for _, b := range h.Buckets {
		if i, found := slices.BinarySearch(bounds, b.UpTo); found {
			d.UpTo[i] = b.Count
		}
	}
	return d
}
