package api

import (
	"strings"
	"time"
)

// Terms are what a guest has been granted of its GPU.
type Terms struct {
	// Weight is its part of the GPU's time relative to the other guests' weights.
	Weight float64
	// Cap is the part of the GPU's time, above 0 to 1, that it never gets more
	// than, even where nobody else has work; 0 is no cap.
	Cap float64
	// Guarantee is the part of the GPU's time that it gets while it has work,
	// whatever the weights; 0 is none. The guarantees on a GPU sum to at most 1.
	Guarantee float64
	// PriorityCeiling is the highest priority, 0 to [MaxPriority], that its
	// launches may have under policies that decide about launches.
	PriorityCeiling int
}

// Peer is the process that may connect to a guest's socket, one of the two.
type Peer struct {
	PID int `json:"pid,omitempty"`
	// PIDFile is a file with the process's number, which is read at every
	// connection: libvirt writes /run/libvirt/qemu/NAME.pid before QEMU runs.
	PIDFile string `json:"pid_file,omitempty"`
}

// VM is one guest and its virtual GPU. Sums count from the guest's creation;
// after a restart of the daemon they go on.
type VM struct {
	Name string `json:"name"`
	// Domain and DomainUUID are the libvirt domain whose guest it is, empty where
	// it is no domain's.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	GPU        string `json:"gpu"`
	// For these see [Terms].
	Weight          float64 `json:"weight"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// Peer is the only process that may connect, where that is restricted.
	Peer *Peer `json:"peer,omitempty"`
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
	// Silent says why the daemon does not govern the guest, which an earlier one made, and
	// what to do; empty: it does. Until it is met it is suspended, if it can be, and of what
	// follows only what was noted is shown.
	Silent string `json:"silent,omitempty"`

	// GPUSeconds is compute time by accounting, and GPUSecondsOwn by the GPU's
	// own count where the GPU has one.
	GPUSeconds    float64  `json:"gpu_seconds"`
	GPUSecondsOwn *float64 `json:"gpu_seconds_own,omitempty"`
	// Share is the guest's part of the compute time that all guests used lately,
	// and Entitled what its weight, cap and guarantee entitle it to among the
	// active ones: 0 to 1.
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
	Preemption      Preemption    `json:"preemption"`
	Control         Control       `json:"control"`
	// Confinement is what keeps the guest's processes from others and the host; nil
	// where nothing does.
	Confinement *Confinement `json:"confinement,omitempty"`
}

// Confinement is what a guest's processes are confined to. Its executors make no
// system calls but those that they need, too, where the host's kernel has filters.
type Confinement struct {
	// UID is the user that they alone are; 0 is the daemon's.
	UID int `json:"uid,omitempty"`
	// PrivateDevices is whether they see no devices but plain ones and Devices, and
	// can write to no file system.
	PrivateDevices bool     `json:"private_devices,omitempty"`
	Devices        []string `json:"devices,omitempty"`
	// Cgroup is the directory of their control group, which has limits; empty is
	// the daemon's.
	Cgroup string `json:"cgroup,omitempty"`
}

// InDomain is whether the guest is a libvirt domain's, given by UUID or name.
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
	// ByKernel is whether the policy decides about each launch, which then waits
	// for its turn, rather than about guests.
	ByKernel bool `json:"by_kernel"`
	VMs      int  `json:"vms"`
	// Healthy is false once the GPU does not answer any more; Problem says why.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	// Hardware is what NVIDIA's driver says of it; nil for one in software.
	Hardware *Hardware `json:"hardware,omitempty"`

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
	// AccountingSource is what the GPU is watched by, [SourceRegisters] or
	// [SourceEvents], and AccountingSourceReason why not by what would come first.
	// RecordsLost is how often records of context switches were.
	AccountingSource       string  `json:"accounting_source"`
	AccountingSourceReason string  `json:"accounting_source_reason,omitempty"`
	RecordsLost            uint64  `json:"records_lost,omitempty"`
	WatchedSeconds         float64 `json:"watched_seconds"`
	Polls                  uint64  `json:"polls"`
	Gaps                   uint64  `json:"polling_gaps"`
	GapSeconds             float64 `json:"polling_gap_seconds"`
	RealTime               bool    `json:"real_time"`
	RealTimeProblem        string  `json:"real_time_problem,omitempty"`

	// Overruns count kernels that the soft GPU computed later than they should
	// have ended, and how much its time was stretched for them.
	Overruns       uint64  `json:"overruns"`
	OverrunSeconds float64 `json:"overrun_seconds"`

	Launches   Launches   `json:"launches"`
	Evictions  Evictions  `json:"evictions"`
	Prediction Prediction `json:"prediction"`
}

// VMSpec asks for a guest.
type VMSpec struct {
	Name string `json:"name"`
	// Domain and DomainUUID are the libvirt domain's that the guest is.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	// GPU names the physical GPU; empty or [AnyGPU]: the one with the least sum
	// of weights, of those with room for the guest's memory and guarantee.
	GPU string `json:"gpu,omitempty"`
	// Weight is relative to the other guests'; 0 is 1. For the rest see [Terms].
	Weight          float64 `json:"weight,omitempty"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// BAR2Bytes is the memory shared with the guest; 0 is the default.
	BAR2Bytes        uint64 `json:"bar2_bytes,omitempty"`
	MemoryLimitBytes uint64 `json:"memory_limit_bytes,omitempty"`
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 is the
	// daemon's default, [NoTimeLimit] or anything below 0 is none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	// Socket is where the VMM is to connect: empty, or RUN_DIR/domains/UUID/gpuN.sock
	// with the daemon's directory and the domain's UUID.
	Socket string `json:"socket,omitempty"`
	// UID and GID own the vfio-user socket where they are set: the VMM's user.
	UID *int `json:"uid,omitempty"`
	GID *int `json:"gid,omitempty"`
	// Peer, if set, is the only process that may connect.
	Peer *Peer `json:"peer,omitempty"`
}

// Terms are the ones that are asked for.
func (s *VMSpec) Terms() Terms {
	t := Terms{Weight: s.Weight, Cap: s.Cap, Guarantee: s.Guarantee, PriorityCeiling: s.PriorityCeiling}
	if t.Weight == 0 {
		t.Weight = 1
	}
	return t
}

// VMUpdate changes a guest; what is nil stays.
type VMUpdate struct {
	Weight          *float64 `json:"weight,omitempty"`
	Cap             *float64 `json:"cap,omitempty"`
	Guarantee       *float64 `json:"guarantee,omitempty"`
	PriorityCeiling *int     `json:"priority_ceiling,omitempty"`
	// Domain is the domain's new name, where it was given another.
	Domain *string `json:"domain,omitempty"`
}

// Apply is t with what the update changes of it.
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
	// Unconfined says what guests' processes are not confined by on this host, and
	// why.
	Unconfined []string `json:"unconfined,omitempty"`
}
