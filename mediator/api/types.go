package api

import (
	"strings"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/mediator/budget"
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
	// Latency is the time within which kernels of guests with a lower priority should leave the GPU
	// for the guest's, under policies that go by priority; 0 means the daemon's default, 100 µs.
	// Those guests' drivers choose the forms of their kernels by it.
	Latency time.Duration
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 means the daemon's default,
	// [NoTimeLimit] or any negative value none.
	KernelTimeLimit time.Duration
	// Budget bounds the GPU time that the guest gets in a day, week or month; the zero value is
	// none.
	Budget quota.Budget
	// MemoryLimitBytes is the GPU memory that the guest may use; 0 means no limit.
	MemoryLimitBytes uint64
}

// Peer is the process that may connect to a guest's socket, by one of the two.
type Peer struct {
	PID int `json:"pid,omitempty"`
	// PIDFile is a file with the PID, read at every connection: libvirt writes
	// /run/libvirt/qemu/NAME.pid before QEMU runs.
	PIDFile string `json:"pid_file,omitempty"`
}

// OnGPU is what a guest that floats has on one GPU, and has used of it. See [VM] for the fields.
type OnGPU struct {
	GPU             string  `json:"gpu"`
	Contexts        int     `json:"contexts"`
	MemoryUsedBytes uint64  `json:"memory_used_bytes"`
	GPUSeconds      float64 `json:"gpu_seconds"`
	BusyRatio       float64 `json:"busy_ratio"`
}

// VM is one guest and its virtual GPU. Counters start at the guest's creation and continue over
// restarts of the daemon.
type VM struct {
	Name string `json:"name"`
	// Domain and DomainUUID identify the guest's libvirt domain, and are empty without one.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	// Owner and Project are whom the guest's usage is billed to; empty if nobody said that.
	Owner   string `json:"owner,omitempty"`
	Project string `json:"project,omitempty"`
	// Engine is the engine whose scheduler placed the guest, such as nova: see [VMSpec].
	Engine string `json:"engine,omitempty"`
	// Budget is the guest's, and OwnerBudget its owner's, which counts the GPU time of all guests of
	// that owner; nil is none.
	Budget      *budget.Status `json:"budget,omitempty"`
	OwnerBudget *budget.Status `json:"owner_budget,omitempty"`
	// Sanction is what these mean for the guest now.
	Sanction quota.Sanction `json:"sanction,omitzero"`
	GPU      string         `json:"gpu"`
	// Float reports whether the guest's contexts are placed on any of the host's GPUs where there is
	// room. Then GPU has those that don't float, the sums are over all GPUs, and each GPU is shared
	// with it by its weight, cap and guarantee.
	Float bool `json:"float,omitempty"`
	// OnGPUs is what a guest that floats has on each of the host's GPUs; empty for others.
	OnGPUs []OnGPU `json:"on_gpus,omitempty"`
	// See [Terms].
	Weight          float64 `json:"weight"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// Latency is in nanoseconds.
	Latency time.Duration `json:"latency_nanos,omitempty"`
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
	// HeldBack says why the guest is suspended, or its launches wait for others, or did so in the last
	// seconds; nil if it is not held back.
	HeldBack *HeldBack `json:"held_back,omitempty"`
	// Lost says why the guest has no virtual GPU any more, although nobody deleted it, and what to
	// do; "" if it has one. LostAt is when it was lost. The fields show what there was then.
	Lost   string     `json:"lost,omitempty"`
	LostAt *time.Time `json:"lost_at,omitempty"`
	// Silent says why the daemon does not control the guest, which an earlier daemon created, and
	// what to do; "" if it does. Such a guest is suspended if possible, and the following fields
	// show only saved values.
	Silent string `json:"silent,omitempty"`

	// GPUSeconds is compute time by accounting, and GPUSecondsOwn by the GPU's own count, if it has
	// one.
	GPUSeconds    float64  `json:"gpu_seconds"`
	GPUSecondsOwn *float64 `json:"gpu_seconds_own,omitempty"`
	// UnaccountedSeconds is the most that the guest can have used of the GPU beyond GPUSeconds while no
	// daemon ran: the GPU keeps no count of its own, and the guest's commands had not ended.
	UnaccountedSeconds float64 `json:"unaccounted_seconds,omitempty"`
	// Share is the guest's recent part of all guests' compute time, and Entitled the part that its
	// weight, cap and guarantee entitle it to among the active guests: 0 to 1.
	Share    float64 `json:"share"`
	Entitled float64 `json:"entitled"`
	// BusyRatio is the part of the GPU's time that the guest used lately, 0 to 1: of the same whole
	// as Entitled, Cap and Guarantee.
	BusyRatio        float64 `json:"busy_ratio"`
	SuspendedSeconds float64 `json:"suspended_seconds"`
	Suspensions      uint64  `json:"suspensions"`
	Kernels          uint64  `json:"kernels"`
	Errors           uint64  `json:"errors"`
	// ErrorReasons are the errors by reason.
	ErrorReasons ErrorReasons `json:"error_reasons,omitzero"`
	CopiedBytes  uint64       `json:"copied_bytes"`
	Commands     uint64       `json:"commands"`
	Doorbells    uint64       `json:"doorbells"`
	// MemoryUsedBytes is the GPU memory that the guest has taken: what counts against
	// MemoryLimitBytes, if that is not 0.
	MemoryUsedBytes  uint64 `json:"memory_used_bytes"`
	MemoryLimitBytes uint64 `json:"memory_limit_bytes,omitempty"`
	// KernelTimeLimit is the GPU time after which a kernel is ended; 0 means none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	Preemption      Preemption    `json:"preemption"`
	// EventKernels are those that are registered now, by number. Events counts the events of all that
	// there were, EventsDropped the rings that found no free entry, and EventsStray those of no kernel.
	EventKernels  []EventKernel `json:"event_kernels,omitempty"`
	Events        uint64        `json:"events,omitempty"`
	EventsDropped uint64        `json:"events_dropped,omitempty"`
	EventsStray   uint64        `json:"events_stray,omitempty"`
	Control       Control       `json:"control"`
	// Confinement separates the guest's processes from others and the host; nil if nothing does.
	Confinement *Confinement `json:"confinement,omitempty"`
}

// On returns how many contexts the guest has on a GPU, and reports whether it is a guest of that GPU: a
// guest that floats is one where it has contexts. A guest that does not answer may have any number, on
// each GPU that it may use.
func (v *VM) On(gpu string) (contexts int, there bool) {
	if !v.Float {
		there = v.GPU == gpu
		if there {
			contexts = v.Contexts
		}
		return contexts, there
	}
	for i := range v.OnGPUs {
		if v.OnGPUs[i].GPU == gpu {
			contexts = v.OnGPUs[i].Contexts
			there = contexts > 0 || v.Silent != ""
		}
	}
	return contexts, there
}

// ErrorReasons counts failed commands by reason.
type ErrorReasons struct {
	Request   uint64 `json:"request"`    // the command can't be carried out as it is
	Memory    uint64 `json:"memory"`     // memory or handles are used up: the GPU's, or by the guest's limit
	Module    uint64 `json:"module"`     // a module that is not one, or not for this GPU
	Fault     uint64 `json:"fault"`      // a kernel's fault
	TimeLimit uint64 `json:"time_limit"` // a kernel ran past its time limit
	Canceled  uint64 `json:"canceled"`   // the channel was closed, or the context reset, before the command ran
	Other     uint64 `json:"other"`      // the host failed, or an executor of an older version counted it
}

// HeldBack is why a guest has less of its GPU than it asks for.
type HeldBack struct {
	// Reason is one of [HeldBackReasons].
	Reason string `json:"reason"`
	// For is the guest for whose sake it is, if it is for one's.
	For string `json:"for,omitempty"`
	// Text says it for people.
	Text string `json:"text"`
}

// HeldBackReasons are why a guest may be held back: it is ahead of its share by weight, at its cap,
// another guest is behind its guarantee, its budget is spent, another guest is more urgent, another
// guest runs alone to be measured, an operator drains its GPU, its process does not answer, or its
// virtual GPU is lost.
var HeldBackReasons = []string{"share", "cap", "guarantee", "budget", "urgent", "sampling", "drained", "silent", "lost"}

// Confinement describes how a guest's processes are confined. In addition, executors can make only
// the system calls that they need, if the host's kernel has filters.
type Confinement struct {
	// UID is a user of their own; 0 means the daemon's.
	UID int `json:"uid,omitempty"`
	// PrivateDevices reports whether they see no devices but plain ones and Devices, and can write
	// to no file system.
	PrivateDevices bool     `json:"private_devices,omitempty"`
	Devices        []string `json:"devices,omitempty"`
	// PrivateNetwork reports whether they reach no network, not even the host's loopback addresses, and
	// no System V shared memory of others.
	PrivateNetwork bool `json:"private_network,omitempty"`
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
	// GrantedBytes is the part of the memory that contexts have that float.
	GrantedBytes uint64 `json:"granted_bytes,omitempty"`
	// SpareBytes is the part of it that is lent to spare executors, for contexts that they made ahead.
	SpareBytes uint64 `json:"spare_bytes,omitempty"`
	Policy     string `json:"policy"`
	// ByKernel reports whether the policy decides about each launch, which then waits for its turn,
	// rather than about guests.
	ByKernel bool `json:"by_kernel"`
	VMs      int  `json:"vms"`
	// Healthy is false once the GPU no longer answers, for the reason in Problem.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	// Cordoned reports whether no guest is created on the GPU, and Draining whether in addition no
	// guest gets a context there and those without one are moved to other GPUs. Drained reports whether
	// no guest has a context there any more.
	Cordoned bool `json:"cordoned"`
	Draining bool `json:"draining"`
	Drained  bool `json:"drained,omitempty"`
	// EventKernels reports whether guests are offered event kernels on the GPU. Those that float are not.
	EventKernels bool `json:"event_kernels,omitempty"`
	// LostVMs counts guests whose virtual GPU was lost since the daemon started.
	LostVMs uint64 `json:"lost_vms"`
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
	// it is not the preferred one. RecordsLost counts losses of context switch records. RecordPauses
	// counts how often their recording was paused, and RecordPaused reports whether it is now.
	AccountingSource       string  `json:"accounting_source"`
	AccountingSourceReason string  `json:"accounting_source_reason,omitempty"`
	RecordsLost            uint64  `json:"records_lost,omitempty"`
	RecordPauses           uint64  `json:"record_pauses,omitempty"`
	RecordPaused           bool    `json:"record_paused,omitempty"`
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
	// Owner and Project are whom the guest's usage is billed to.
	Owner   string `json:"owner,omitempty"`
	Project string `json:"project,omitempty"`
	// Engine names the engine whose scheduler placed the guest and keeps account of what it is given,
	// such as nova; empty for a guest that somebody made on this host.
	Engine string `json:"engine,omitempty"`
	// GPU names the physical GPU. Empty or [AnyGPU] means, of those with room for the guest's
	// memory and guarantee, the one with the least sum of weights.
	GPU string `json:"gpu,omitempty"`
	// Float has the guest's contexts be placed on whichever GPU has room, and wait where none has.
	// Then GPU must be empty, and a guest without a memory limit has the largest GPU's memory.
	Float bool `json:"float,omitempty"`
	// Weight is relative to the other guests' weights; 0 means 1. For the others see [Terms].
	Weight          float64 `json:"weight,omitempty"`
	Cap             float64 `json:"cap,omitempty"`
	Guarantee       float64 `json:"guarantee,omitempty"`
	PriorityCeiling int     `json:"priority_ceiling,omitempty"`
	// Latency is in nanoseconds.
	Latency time.Duration `json:"latency_nanos,omitempty"`
	// Budget bounds the guest's GPU time; left out means none.
	Budget quota.Budget `json:"budget,omitzero"`
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
	t := Terms{Weight: s.Weight, Cap: s.Cap, Guarantee: s.Guarantee, PriorityCeiling: s.PriorityCeiling, Latency: s.Latency, KernelTimeLimit: s.KernelTimeLimit, Budget: s.Budget, MemoryLimitBytes: s.MemoryLimitBytes}
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
	// Latency is in nanoseconds; 0 is the daemon's default.
	Latency *time.Duration `json:"latency_nanos,omitempty"`
	// KernelTimeLimit also holds for kernels that run already. See [Terms].
	KernelTimeLimit *time.Duration `json:"kernel_time_limit_nanos,omitempty"`
	// Budget replaces the budget; one without limits is none.
	Budget *quota.Budget `json:"budget,omitempty"`
	// MemoryLimitBytes is the GPU memory that the guest may use; 0 is no limit. Memory that it has
	// taken beyond a lower limit stays its own until its programs give it back.
	MemoryLimitBytes *uint64 `json:"memory_limit_bytes,omitempty"`
	// Domain is the domain's new name, after a rename.
	Domain *string `json:"domain,omitempty"`
	// Owner and Project are whom the guest's usage is billed to from now on.
	Owner   *string `json:"owner,omitempty"`
	Project *string `json:"project,omitempty"`
}

// Apply returns t with the update's changes.
func (u *VMUpdate) Apply(t Terms) Terms {
	set(&t.Weight, u.Weight)
	set(&t.Cap, u.Cap)
	set(&t.Guarantee, u.Guarantee)
	set(&t.PriorityCeiling, u.PriorityCeiling)
	set(&t.Latency, u.Latency)
	set(&t.KernelTimeLimit, u.KernelTimeLimit)
	set(&t.Budget, u.Budget)
	set(&t.MemoryLimitBytes, u.MemoryLimitBytes)
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
	// Cordoned keeps guests from being created on the GPU. Draining, which implies that, keeps
	// guests there from creating contexts, too; false for Cordoned ends both.
	Cordoned *bool `json:"cordoned,omitempty"`
	Draining *bool `json:"draining,omitempty"`
	// EndContexts ends the contexts that guests have on a GPU that is draining, or drained by the
	// same request: their programs' calls fail.
	EndContexts bool `json:"end_contexts,omitempty"`
}

// Health is the daemon's own state.
type Health struct {
	Version string `json:"version"`
	// Healthy reports whether all GPUs are healthy; Problems lists what is wrong.
	Healthy       bool     `json:"healthy"`
	Problems      []string `json:"problems,omitempty"`
	UptimeSeconds float64  `json:"uptime_seconds"`
	// Cordoned lists the GPUs on which no guest is created, because an operator wants it so.
	Cordoned []string `json:"cordoned,omitempty"`
	// Unconfined lists the forms of confinement that guests' processes lack on this host, with
	// reasons.
	Unconfined []string `json:"unconfined,omitempty"`
	// UsageProblems are those of Problems that concern the record of usage.
	UsageProblems []string `json:"usage_problems,omitempty"`
}
