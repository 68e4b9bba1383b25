package web

import (
	"fmt"
	"time"

	"vgpud/mediator/api"
)

// GPU is one GPU as the page shows it. Ratios that are not known are negative.
type GPU struct {
	Name        string `json:"name"`
	Model       string `json:"model"`
	Kind        string `json:"kind"`
	Policy      string `json:"policy"`
	SMs         int    `json:"sms"`
	MemoryBytes uint64 `json:"memory_bytes"`
	VMs         int    `json:"vms"`
	Healthy     bool   `json:"healthy"`
	Problem     string `json:"problem,omitempty"`
	Cordoned    bool   `json:"cordoned"`
	Draining    bool   `json:"draining"`
	Drained     bool   `json:"drained,omitempty"`
	// Busy is the part of the last five seconds in which it executed.
	Busy              float64  `json:"busy"`
	SwitchesPerSecond float64  `json:"switches_per_second"`
	Source            string   `json:"source"`
	SourceReason      string   `json:"source_reason,omitempty"`
	Evictions         uint64   `json:"evictions"`
	EvictionP50       float64  `json:"eviction_p50_seconds"`
	EvictionP99       float64  `json:"eviction_p99_seconds"`
	Temperature       *float64 `json:"temperature_celsius,omitempty"`
	Power             *float64 `json:"power_watts,omitempty"`
	PowerLimit        *float64 `json:"power_limit_watts,omitempty"`
	MemoryUsed        *uint64  `json:"memory_used_bytes,omitempty"`
}

// Rates are a guest's counters a second.
type Rates struct {
	KernelsPerSecond   float64 `json:"kernels_per_second"`
	EvictionsPerSecond float64 `json:"evictions_per_second"`
}

// Guest is one guest as the page shows it. Ratios that are not known are negative.
type Guest struct {
	Name   string `json:"name"`
	Domain string `json:"domain,omitempty"`
	Owner  string `json:"owner,omitempty"`
	GPU    string `json:"gpu"`
	// State is one of the words of [State], and Reason says why, for people.
	State  State  `json:"state"`
	Reason string `json:"reason"`
	// Share and Held are the parts of the last five seconds for which the guest used the GPU and
	// was suspended. Entitled is what it is entitled to, of the same time.
	Share           float64 `json:"share"`
	Entitled        float64 `json:"entitled"`
	Held            float64 `json:"held"`
	Weight          float64 `json:"weight"`
	Cap             float64 `json:"cap"`
	Guarantee       float64 `json:"guarantee"`
	PriorityCeiling int     `json:"priority_ceiling"`
	// Latency is in nanoseconds; 0 is the default.
	Latency    time.Duration `json:"latency_nanos"`
	GPUSeconds float64       `json:"gpu_seconds"`
	Kernels    uint64        `json:"kernels"`
	Rates
	Evictions        uint64  `json:"evictions"`
	EvictionSeconds  float64 `json:"eviction_seconds"`
	Errors           uint64  `json:"errors"`
	Contexts         int     `json:"contexts"`
	Waiting          int     `json:"waiting"`
	Running          int     `json:"running"`
	MemoryUsedBytes  uint64  `json:"memory_used_bytes"`
	MemoryLimitBytes uint64  `json:"memory_limit_bytes"`
	// KernelTimeLimit is in seconds; 0 is none.
	KernelTimeLimit float64 `json:"kernel_time_limit_seconds"`
}

// State is what a guest is doing, in one word.
type State string

// The states, the most urgent first.
const (
	Lost     State = "lost"     // its virtual GPU is gone
	Silent   State = "silent"   // its process does not answer
	Held     State = "held"     // it has been suspended for a part of the last seconds
	Working  State = "working"  // it used the GPU
	Waiting  State = "waiting"  // it has launches and did not get the GPU
	Idle     State = "idle"     // it has contexts and no work
	Ready    State = "ready"    // a VMM is connected, and no program has a context
	Detached State = "detached" // no VMM is connected
)

// heldFrom is the part of the last seconds from which on a guest counts as held back. Policies
// suspend a guest for single rounds all the time.
const heldFrom = 0.05

// stateOf returns what a guest is doing and why.
func stateOf(v *api.VM, share, held float64) (State, string) {
	switch {
	case v.Lost != "":
		return Lost, v.Lost
	case v.Silent != "":
		return Silent, v.Silent
	case held >= heldFrom:
		return Held, heldReason(v, held)
	case v.Preemption.Launches.Running > 0 || share > 0.0005:
		return Working, workReason(v, share)
	case v.Active || v.Preemption.Launches.Waiting > 0:
		return Waiting, waitReason(v)
	case v.Contexts > 0:
		return Idle, "no work"
	case v.Attached:
		return Ready, readyReason(v)
	default:
		return Detached, "no VM is connected"
	}
}

// waitReason says what a guest with launches waits for.
func waitReason(v *api.VM) string {
	if v.HeldBack != nil {
		return "it has work, and " + v.HeldBack.Text
	}
	return "it has work, and others have the GPU"
}

// readyReason says why no program of a guest has a context.
func readyReason(v *api.VM) string {
	if v.HeldBack != nil {
		return v.HeldBack.Text
	}
	return "no program has a context"
}

// heldReason says why a guest was suspended.
func heldReason(v *api.VM, held float64) string {
	time := fmt.Sprintf("suspended %.0f %% of the time", 100*held)
	switch {
	case v.Control.Problem != "":
		return time + "; the driver: " + v.Control.Problem
	case v.HeldBack == nil:
		return time
	case v.HeldBack.Reason == "cap":
		return fmt.Sprintf("%s, at its cap of %.0f %%", time, 100*v.Cap)
	default:
		return time + ", " + v.HeldBack.Text
	}
}

// workReason says how much a working guest gets of what it is entitled to.
func workReason(v *api.VM, share float64) string {
	switch {
	case share < 0:
		return ""
	case share > v.Entitled+0.02:
		return "uses what others leave"
	case share < v.Entitled-0.02:
		return "wants less than its share"
	default:
		return "at its share"
	}
}

func gpuOf(g *api.GPU, mean observation, switches float64) GPU {
	out := GPU{
		Name: g.Name, Model: g.Model, Kind: g.Kind, Policy: g.Policy, SMs: g.SMs, MemoryBytes: g.MemoryBytes, VMs: g.VMs,
		Healthy: g.Healthy, Problem: g.Problem, Cordoned: g.Cordoned, Draining: g.Draining, Drained: g.Drained, Busy: g.BusyRatio, SwitchesPerSecond: switches,
		Source: g.AccountingSource, SourceReason: g.AccountingSourceReason,
		Evictions: g.Evictions.Count, EvictionP50: g.Evictions.P50, EvictionP99: g.Evictions.P99,
	}
	if mean.kind != "" {
		out.Busy = ratio(mean.points[seriesShare])
	}
	if h := g.Hardware; h != nil {
		out.Temperature, out.Power, out.PowerLimit, out.MemoryUsed = h.TemperatureCelsius, h.PowerWatts, h.PowerLimitWatts, h.MemoryUsedBytes
	}
	return out
}

func guestOf(v *api.VM, mean observation, rates Rates) Guest {
	out := Guest{
		Name: v.Name, Domain: v.Domain, Owner: v.Owner, GPU: v.GPU, Share: ratio(mean.points[seriesShare]), Held: ratio(mean.points[seriesHeld]),
		Entitled: v.Entitled, Weight: v.Weight, Cap: v.Cap, Guarantee: v.Guarantee, PriorityCeiling: v.PriorityCeiling,
		GPUSeconds: v.GPUSeconds, Kernels: v.Kernels, Rates: rates, Evictions: v.Preemption.Evictions,
		EvictionSeconds: v.Preemption.EvictionSeconds, Errors: v.Errors, Contexts: v.Contexts,
		Waiting: v.Preemption.Launches.Waiting, Running: v.Preemption.Launches.Running, MemoryUsedBytes: v.MemoryUsedBytes,
		MemoryLimitBytes: v.MemoryLimitBytes, KernelTimeLimit: v.KernelTimeLimit.Seconds(), Latency: v.Latency,
	}
	out.State, out.Reason = stateOf(v, out.Share, out.Held)
	return out
}

// ratio is the inverse of point; missing points are negative.
func ratio(p int16) float64 {
	if p == missing {
		return -1
	}
	return float64(p) / full
}
