package api

import (
	"strings"
	"time"
)

// Terms are what a guest has been granted of its GPU.
type Terms struct {
	// Weight is its part of the GPU's time relative to the other guests' weights.
	Weight float64
	// Cap is the largest part of the GPU's time, above 0 to 1, that the guest gets, even if no
	// other guest has work; 0 means no cap.
	Cap float64
	// Guarantee is the least part of the GPU's time that the guest gets while it has work, whatever
	// the weights; 0 means none. The guarantees on a GPU add up to at most 1.
	Guarantee float64
	// PriorityCeiling is the highest priority, 0 to [MaxPriority], of its launches, under policies
	// that decide about launches.
	PriorityCeiling int
}

// Peer is the process that may connect to a guest's socket, by one of the two.
type Peer struct {
	PID int `json:"pid,omitempty"`
	// PIDFile is a file with the PID, read at every connection: libvirt writes
	// /run/libvirt/qemu/NAME.pid before QEMU runs.
	PIDFile string `json:"pid_file,omitempty"`
}

// VM is one guest and its virtual GPU. Counters start at the guest's creation and continue over
// restarts of the daemon.
type VM struct {
	Name string `json:"name"`
	// Domain and DomainUUID identify the guest's libvirt domain, and are empty without one.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	GPU        string `json:"gpu"`
	// See [Terms].
	Weight          float64 `json:"weight"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// Peer is the only process that may connect, if that is restricted.
	Peer *Peer `json:"peer,omitempty"`
	// Socket is the VMM's socket, and Attached reports whether a VMM is connected.
	Socket   string `json:"socket"`
	Attached bool   `json:"attached"`
	PID      int    `json:"pid"`
	// Contexts is the number of tenant processes with a context, and Groups are their hardware
	// channel groups.
	Contexts int      `json:"contexts"`
	Groups   []uint16 `json:"groups,omitempty"`
	// Active reports whether the guest had work in the last round, and Suspended whether its
	// channels are suspended.
	Active    bool `json:"active"`
	Suspended bool `json:"suspended"`
	// Silent says why the daemon does not control the guest, which an earlier daemon created, and
	// what to do; "" if it does. Such a guest is suspended if possible, and the following fields
	// show only saved values.
	Silent string `json:"silent,omitempty"`

	// GPUSeconds is compute time by accounting, and GPUSecondsOwn by the GPU's own count, if it has
	// one.
	GPUSeconds    float64  `json:"gpu_seconds"`
	GPUSecondsOwn *float64 `json:"gpu_seconds_own,omitempty"`
	// Share is the guest's recent part of all guests' compute time, and Entitled the part that its
	// weight, cap and guarantee entitle it to among the active guests: 0 to 1.
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
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 means none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	Preemption      Preemption    `json:"preemption"`
	Control         Control       `json:"control"`
	// Confinement separates the guest's processes from others and the host; nil if nothing does.
	Confinement *Confinement `json:"confinement,omitempty"`
}

// Confinement describes how a guest's processes are confined. In addition, executors can make only
// the system calls that they need, if the host's kernel has filters.
type Confinement struct {
	// UID is a user of their own; 0 means the daemon's.
	UID int `json:"uid,omitempty"`
	// PrivateDevices reports whether they see no devices but plain ones and Devices, and can write
	// to no file system.
	PrivateDevices bool     `json:"private_devices,omitempty"`
	Devices        []string `json:"devices,omitempty"`
	// Cgroup is the directory of their control group, which has limits; "" means the daemon's.
	Cgroup string `json:"cgroup,omitempty"`
}

// InDomain reports whether the guest belongs to a libvirt domain, given by UUID or name.
func (v *VM) InDomain(domain string) bool {
	return domain != "" && (v.Domain == domain || strings.EqualFold(v.DomainUUID, domain))
}

// GPU is one physical GPU.
type GPU struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Model       string `json:"model"`
	SMs         int    `json:"sms"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Policy      string `json:"policy"`
	// ByKernel reports whether the policy decides about each launch, which then waits for its turn,
	// rather than about guests.
	ByKernel bool `json:"by_kernel"`
	VMs      int  `json:"vms"`
	// Healthy is false once the GPU no longer answers, for the reason in Problem.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	// Hardware is NVIDIA's driver's description; nil for a GPU in software.
	Hardware *Hardware `json:"hardware,omitempty"`

	// BusyRatio is the part of the last polled time in which the GPU executed.
	BusyRatio float64 `json:"busy_ratio"`
	// Busy, idle and switching seconds are estimates over all time, from the polling phases.
	BusySeconds      float64 `json:"busy_seconds"`
	IdleSeconds      float64 `json:"idle_seconds"`
	SwitchingSeconds float64 `json:"switching_seconds"`
	Switches         uint64  `json:"switches"`
	Rounds           uint64  `json:"rounds"`

	// The cost of accounting, and how far it can be trusted.
	AccountingCPUSeconds float64 `json:"accounting_cpu_seconds"`
	// AccountingSource is [SourceRegisters] or [SourceEvents], and AccountingSourceReason says why
	// it is not the preferred one. RecordsLost counts losses of context switch records.
	AccountingSource       string  `json:"accounting_source"`
	AccountingSourceReason string  `json:"accounting_source_reason,omitempty"`
	RecordsLost            uint64  `json:"records_lost,omitempty"`
	WatchedSeconds         float64 `json:"watched_seconds"`
	Polls                  uint64  `json:"polls"`
	Gaps                   uint64  `json:"polling_gaps"`
	GapSeconds             float64 `json:"polling_gap_seconds"`
	RealTime               bool    `json:"real_time"`
	RealTimeProblem        string  `json:"real_time_problem,omitempty"`

	// Overruns counts kernels that the soft GPU computed later than they should have ended, and
	// OverrunSeconds the time by which it extended them.
	Overruns       uint64  `json:"overruns"`
	OverrunSeconds float64 `json:"overrun_seconds"`

	Launches   Launches   `json:"launches"`
	Evictions  Evictions  `json:"evictions"`
	Prediction Prediction `json:"prediction"`
}

// VMSpec is a request for a guest.
type VMSpec struct {
	Name string `json:"name"`
	// Domain and DomainUUID identify the guest's libvirt domain.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	// GPU names the physical GPU. Empty or [AnyGPU] means, of those with room for the guest's
	// memory and guarantee, the one with the least sum of weights.
	GPU string `json:"gpu,omitempty"`
	// Weight is relative to the other guests' weights; 0 means 1. For the others see [Terms].
	Weight          float64 `json:"weight,omitempty"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// BAR2Bytes is the size of the memory shared with the guest; 0 means the default.
	BAR2Bytes        uint64 `json:"bar2_bytes,omitempty"`
	MemoryLimitBytes uint64 `json:"memory_limit_bytes,omitempty"`
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 means the daemon's default,
	// [NoTimeLimit] or any negative value none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	// Socket is the VMM's socket: empty, or RUN_DIR/domains/UUID/gpuN.sock with the daemon's
	// directory and the domain's UUID.
	Socket string `json:"socket,omitempty"`
	// UID and GID, if set, own the vfio-user socket: the VMM's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// Peer, if set, is the only process that may connect.
	Peer *Peer `json:"peer,omitempty"`
}

// Terms returns the requested terms.
func (s *VMSpec) Terms() Terms {
	t := Terms{Weight: s.Weight, Cap: s.Cap, Guarantee: s.Guarantee, PriorityCeiling: s.PriorityCeiling}
	if t.Weight == 0 {
		t.Weight = 1
	}
	return t
}

// VMUpdate changes a guest; nil fields stay as they are.
type VMUpdate struct {
	Weight          *float64 `json:"weight,omitempty"`
	Cap             *float64 `json:"cap,omitempty"`
	Guarantee       *float64 `json:"guarantee,omitempty"`
	PriorityCeiling *int     `json:"priority_ceiling,omitempty"`
	// Domain is the domain's new name, after a rename.
	Domain *string `json:"domain,omitempty"`
}

// Apply returns t with the update's changes.
func (u *VMUpdate) Apply(t Terms) Terms {
	set(&t.Weight, u.Weight)
	set(&t.Cap, u.Cap)
	set(&t.Guarantee, u.Guarantee)
	set(&t.PriorityCeiling, u.PriorityCeiling)
	return t
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// GPUUpdate changes how a GPU is shared; nil fields stay as they are.
type GPUUpdate struct {
	Policy *string `json:"policy,omitempty"`
}

// Health is the daemon's own state.
type Health struct {
	Version string `json:"version"`
	// Healthy reports whether all GPUs are healthy; Problems lists what is wrong.
	Healthy       bool     `json:"healthy"`
	Problems      []string `json:"problems,omitempty"`
	UptimeSeconds float64  `json:"uptime_seconds"`
	// Unconfined lists the forms of confinement that guests' processes lack on this host, with
	// reasons.
	Unconfined []string `json:"unconfined,omitempty"`
}
