package api

import (
	"errors"
	"fmt"
	"time"
)

// VM is one guest and its virtual GPU. Sums count from the guest's creation;
// after a restart of the daemon they go on.
type VM struct {
	Name   string  `json:"name"`
	GPU    string  `json:"gpu"`
	Weight float64 `json:"weight"`
	// Socket is where the VMM connects, Attached whether one has.
	Socket   string `json:"socket"`
	Attached bool   `json:"attached"`
	PID      int    `json:"pid"`
	// Contexts are tenant processes with a context now; Groups are the hardware
	// channel groups that these are.
	Contexts int      `json:"contexts"`
	Groups   []uint16 `json:"groups,omitempty"`
	// Active is whether the guest had work in the last round, and Suspended
	// whether its channels are held now.
	Active    bool `json:"active"`
	Suspended bool `json:"suspended"`

	// GPUSeconds is compute time by accounting, and GPUSecondsOwn by the GPU's
	// own count where the GPU has one.
	GPUSeconds    float64  `json:"gpu_seconds"`
	GPUSecondsOwn *float64 `json:"gpu_seconds_own,omitempty"`
	// Share is the guest's part of the compute time that all guests used lately,
	// and Entitled what its weight entitles it to among the active ones: 0 to 1.
	Share            float64 `json:"share"`
	Entitled         float64 `json:"entitled"`
	SuspendedSeconds float64 `json:"suspended_seconds"`
	Suspensions      uint64  `json:"suspensions"`
	Kernels          uint64  `json:"kernels"`
	Errors           uint64  `json:"errors"`
	CopiedBytes      uint64  `json:"copied_bytes"`
	Commands         uint64  `json:"commands"`
	Doorbells        uint64  `json:"doorbells"`
	MemoryLimitBytes uint64  `json:"memory_limit_bytes,omitempty"`
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 is none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
}

// GPU is one physical GPU.
type GPU struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Model       string `json:"model"`
	SMs         int    `json:"sms"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Policy      string `json:"policy"`
	VMs         int    `json:"vms"`
	// Healthy is false once the GPU does not answer any more; Problem says why.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`

	// BusyRatio is the part of the last watched time in which the GPU executed.
	BusyRatio float64 `json:"busy_ratio"`
	// Busy, idle and switching seconds are estimates over all time, from what
	// the polling phases showed.
	BusySeconds      float64 `json:"busy_seconds"`
	IdleSeconds      float64 `json:"idle_seconds"`
	SwitchingSeconds float64 `json:"switching_seconds"`
	Switches         uint64  `json:"switches"`
	Rounds           uint64  `json:"rounds"`

	// What accounting costs, and how far it can be trusted.
	AccountingCPUSeconds float64 `json:"accounting_cpu_seconds"`
	WatchedSeconds       float64 `json:"watched_seconds"`
	Polls                uint64  `json:"polls"`
	Gaps                 uint64  `json:"polling_gaps"`
	GapSeconds           float64 `json:"polling_gap_seconds"`
	RealTime             bool    `json:"real_time"`
	RealTimeProblem      string  `json:"real_time_problem,omitempty"`

	// Overruns count kernels that the soft GPU computed later than they should
	// have ended, and how much its time was stretched for them.
	Overruns       uint64  `json:"overruns"`
	OverrunSeconds float64 `json:"overrun_seconds"`
}

// VMSpec asks for a guest.
type VMSpec struct {
	Name string `json:"name"`
	// GPU names the physical GPU; empty is the first.
	GPU string `json:"gpu,omitempty"`
	// Weight is relative to the other guests'; 0 is 1.
	Weight float64 `json:"weight,omitempty"`
	// BAR2Bytes is the memory shared with the guest; 0 is the default.
	BAR2Bytes        uint64 `json:"bar2_bytes,omitempty"`
	MemoryLimitBytes uint64 `json:"memory_limit_bytes,omitempty"`
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 is the
	// daemon's default, [NoTimeLimit] or anything below 0 is none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	// UID and GID own the vfio-user socket where they are set: the VMM's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
}

// VMUpdate changes a guest; what is nil stays.
type VMUpdate struct {
	Weight *float64 `json:"weight,omitempty"`
}

// GPUUpdate changes how a GPU is shared; what is nil stays.
type GPUUpdate struct {
	Policy *string `json:"policy,omitempty"`
}

// Health is the daemon's own state.
type Health struct {
	Version string `json:"version"`
	// Healthy is whether all GPUs are; Problems say what is wrong.
	Healthy       bool     `json:"healthy"`
	Problems      []string `json:"problems,omitempty"`
	UptimeSeconds float64  `json:"uptime_seconds"`
}

// The errors of a [Host], which its wrap.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrInvalid  = errors.New("invalid")
)

// Limits of what may be asked for.
const (
	MinWeight = 0.001
	MaxWeight = 1_000_000
	maxName   = 64
)

// NoTimeLimit lets kernels run for as long as they like: one that never ends
// keeps the GPU from all other guests.
const NoTimeLimit time.Duration = -1

// ParseTimeLimit reads a limit of kernels' GPU time: "none", which is
// NoTimeLimit, or a positive duration such as "10s".
func ParseTimeLimit(s string) (time.Duration, error) {
	if s == "none" {
		return NoTimeLimit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("time limit %q: want \"none\" or a positive duration such as 10s: %w", s, ErrInvalid)
	}
	return d, nil
}

// CheckWeight says what is wrong with a weight.
func CheckWeight(w float64) error {
	if !(w >= MinWeight && w <= MaxWeight) { // NaN too
		return fmt.Errorf("weight %v: want a number from %v to %d: %w", w, MinWeight, MaxWeight, ErrInvalid)
	}
	return nil
}

// CheckName says what is wrong with a guest's name, which becomes part of a
// path.
func CheckName(name string) error {
	ok := name != "" && len(name) <= maxName && name[0] != '.' && name[0] != '-'
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("name %q: want 1 to %d letters, digits, '-', '_' or '.', not beginning with '-' or '.': %w", name, maxName, ErrInvalid)
	}
	return nil
}
