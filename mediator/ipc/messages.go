package ipc

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kind is the kind of a message.
type Kind string

// Messages between vm and exec.
const (
	// KindSetup (vm to exec) is the first message: body [Setup]; files BAR2, the guest's control
	// page, if vm has it the file of [ControlPage.SetSuspensionFile] and, if the context was saved, the
	// file of [KindSave].
	KindSetup Kind = "setup"
	// KindPrepare (vm to exec) is the first message to a spare executor, which opens the GPU at once:
	// body [Prepare]. KindSetup follows, once there is a context for it.
	KindPrepare Kind = "prepare"
	// KindAhead (vm to exec) may come between the two: the spare executor makes a context on the GPU,
	// for the context that will come, and answers with a message of the same kind, with Error set if it
	// has none. Its body and its two files are those of a [KindSetup] that is like the one to come in all
	// but what only that knows: slot, grant, last fault and what was saved. If the one to come differs in
	// more, the executor may end instead.
	KindAhead Kind = "ahead"
	// KindReady (exec to vm): the context carries out commands or, with Error set, never will. Then
	// its body may be a [Fault] with the reason's code.
	KindReady Kind = "ready"
	// KindOpen and KindShut (vm to exec) open and close a channel: body [Channel]. Each is answered
	// by a message of its kind and ID, with Error set if it failed.
	KindOpen Kind = "open-channel"
	KindShut Kind = "close-channel"
	// KindSave (vm to exec) has the context leave its GPU, as soon as nothing of it is there: file a file
	// in memory, to which all of the context is written. It is answered by a message of its kind and ID.
	// The executor then ends with the connection or, with Error set, goes on. The file may be part of a later [KindSetup].
	// An executor sends the same without an ID, with a file of its own, when its GPU was lost and no kernel
	// has run.
	// An executor may send the same without an ID, with a file of its own, when its GPU was lost.
	KindSave Kind = "save"
	// KindVector (vm to exec) replaces an interrupt vector's eventfd: body [Vector]; file the
	// eventfd, or none to turn the vector off.
	KindVector Kind = "vector"
	// KindVectors (vm to exec) follows the setup, with the interrupt vectors that there are: body [Vectors];
	// files their eventfds.
	KindVectors Kind = "vectors"
	// KindFault (exec to vm): a kernel ended the GPU context; body [Fault].
	KindFault Kind = "fault"
)

// KindFailed (exec to vm): a channel is no longer fetched; body [ChannelFailure].
const KindFailed Kind = "channel-failed"

// KindHandles carries the handles by which the GPU's driver knows a context: body [Handles], files
// the driver's. exec sends it to vm once after [KindReady], if its context has handles and the
// [Setup] says that vm wants them. vm passes them on to the daemon, and to each later daemon. A
// message without files says that the executor has ended, and that the daemon is to close what it
// was passed.
const KindHandles Kind = "handles"

// Bounds of a context's handles.
const (
	// MaxHandleFiles bounds the files.
	MaxHandleFiles = 4
	// MaxHandleNames bounds the names, in bytes.
	MaxHandleNames = 16 << 10
)

// Messages between vm and serve, over the guest's control socket.
const (
	// KindHello (vm to serve) is the first message: body [Hello], file the guest's control page. A
	// guest that floats has a page for each of [Spec].Floats, in their order.
	KindHello Kind = "hello"
	// KindLog (serve to vm) replaces the process's standard error: file the daemon's pipe. A vm of
	// an older version ignores it.
	KindLog Kind = "log"
	// KindQuit (serve to vm) ends the guest's virtual GPU.
	KindQuit Kind = "quit"
	// KindDrain (serve to vm) says whether the guest's GPU is being drained: body [Drain]. A vm of
	// an older version ignores it.
	KindDrain Kind = "drain"
	// KindChanged (vm to serve): channels or contexts came or went, so the daemon may have to
	// decide anew. One message may stand for several changes.
	KindChanged Kind = "changed"
)

// Messages between vm and serve about contexts that float.
const (
	// KindTask (vm to serve): a context asks for a GPU; body [Task]. It is answered by [KindPlace],
	// as often as there is news.
	KindTask Kind = "task"
	// KindTaskGone (vm to serve): a context that asked, or was placed, is gone, and its executor
	// with it; body [Task].
	KindTaskGone Kind = "task-gone"
	// KindPlace (serve to vm): body [Place].
	KindPlace Kind = "place"
	// KindLeave (serve to vm): a context is to leave its GPU, with its memory on the host, until it is
	// placed again; body [Leave]. It is answered by [KindLeft], when nothing of the context is on the GPU
	// any more or when it is clear that it stays. A vm of an older version ignores it.
	KindLeave Kind = "leave"
	// KindLeft (vm to serve): body [Left].
	KindLeft Kind = "left"
	// KindWants (vm to serve): a context that has left has commands again; body [Leave].
	KindWants Kind = "wants"
	// KindGrow (vm to serve; exec to vm): a context needs more memory than it was granted; body [Grow]. It
	// is answered by [KindPlace], with Want set, or by its being placed elsewhere.
	KindGrow Kind = "grow"
	// KindGrant (vm to exec) answers [KindGrow]: body [Grant].
	KindGrant Kind = "grant"
)

// Messages between vm and serve about contexts that are made ahead, in spare executors.
const (
	// KindSpare (vm to serve): the guest's process asks for GPU memory, to make a context ahead; body
	// [Spare]. It is answered by [KindLend].
	KindSpare Kind = "spare"
	// KindLend (serve to vm): the memory is lent, or is not, or no longer; body [Lend]. A vm of an older
	// version ignores it.
	KindLend Kind = "lend"
	// KindSpareGone (vm to serve): the context that was made ahead is gone, or is one of the guest's
	// now; body [Spare].
	KindSpareGone Kind = "spare-gone"
)

// Spare names a context that is made ahead.
type Spare struct {
	// Number distinguishes those of one guest. It is above 0.
	Number uint64 `json:"number"`
	// GPU is an index of [Spec].Floats, or 0 for a guest that does not float.
	GPU int `json:"gpu,omitempty"`
	// PID is the process that makes it. An older guest's process does not tell: 0.
	PID int `json:"pid,omitempty"`
}

// Lend is the word on the memory of a context that is made ahead.
type Lend struct {
	Number uint64 `json:"number"`
	// Lent reports whether it may. Otherwise the context is to end at once, and [KindSpareGone] says
	// when it has.
	Lent bool `json:"lent,omitempty"`
}

// Leave names a context that floats.
type Leave struct {
	Slot       int    `json:"slot"`
	Generation uint32 `json:"generation"`
}

// Left says that a context has left its GPU and has no executor, or why it stays.
type Left struct {
	Slot       int    `json:"slot"`
	Generation uint32 `json:"generation"`
	// Times is how often the context has left a GPU. A [Place] says which time it is about.
	Times uint32 `json:"times,omitempty"`
	// Bytes are those of the host's memory in which the context is, and Memory is what it had been
	// granted: it needs as much to go on. 0 is not known.
	Bytes  uint64 `json:"bytes,omitempty"`
	Memory uint64 `json:"memory,omitempty"`
	// Wants reports whether it has commands.
	Wants bool `json:"wants,omitempty"`
	// Error is why it stays where it is.
	Error string `json:"error,omitempty"`
}

// Grow is a context's request for memory bytes in all.
type Grow struct {
	Slot       int    `json:"slot"`
	Generation uint32 `json:"generation,omitempty"`
	Memory     uint64 `json:"memory"`
}

// Grant is what a context may take that asked for Want bytes: less means that it gets no more.
type Grant struct {
	Bytes uint64 `json:"bytes"`
	Want  uint64 `json:"want"`
}

// Saved is the body of the answer to [KindSave].
type Saved struct {
	// Wants reports whether commands wait in the context's channels.
	Wants bool `json:"wants,omitempty"`
}

// Task is a context that floats, and what it asks for.
type Task struct {
	Slot int `json:"slot"`
	// Generation distinguishes contexts that had the same slot one after the other.
	Generation uint32 `json:"generation"`
	// Tag is the guest's number for the context.
	Tag uint32 `json:"tag,omitempty"`
	// Memory is in bytes. Blocks and Threads are the largest launch's, 0 if they are not known.
	Memory  uint64 `json:"memory"`
	Blocks  uint32 `json:"blocks,omitempty"`
	Threads uint32 `json:"threads,omitempty"`
	// Whole says that the context did not say what it needs: Memory is the limit that its guest was
	// created with.
	Whole bool `json:"whole,omitempty"`
}

// Place tells a guest's process what was decided about a context that floats.
type Place struct {
	Slot       int    `json:"slot"`
	Generation uint32 `json:"generation"`
	// Granted is the memory granted, in bytes; 0: no GPU was chosen. GPU is an index of
	// [Spec].Floats, Number the GPU's number on the host, and Waited how long the context waited.
	Granted uint64        `json:"granted,omitempty"`
	GPU     int           `json:"gpu,omitempty"`
	Number  int           `json:"number,omitempty"`
	Waited  time.Duration `json:"waited,omitempty"`
	// Left is how often the context had left a GPU before.
	Left uint32 `json:"left,omitempty"`
	// Want is the request for more memory that Granted answers; 0: none.
	Want uint64 `json:"want,omitempty"`
	// Reason is why the context waits on, an abi.WaitReason.
	Reason uint32 `json:"reason,omitempty"`
	// Code, an abi.ErrorCode, is why the context never gets a GPU; 0: it may.
	Code uint32 `json:"code,omitempty"`
}

// Drain says what the drain of a GPU means for a guest there.
type Drain struct {
	// Refuse has no context of the guest start on the GPU any more.
	Refuse bool `json:"refuse"`
	// End ends the contexts that the guest has there, as if their executors had died.
	End bool `json:"end,omitempty"`
	// GPU names the GPU, for a guest that floats; "" is the guest's only one.
	GPU string `json:"gpu,omitempty"`
}

// GPU names a physical GPU and how to reach it.
type GPU struct {
	Name string `json:"name"`
	// Kind is the driver that opens it: "soft" or "nvidia".
	Kind string `json:"kind"`
	// Device is the UUID of an NVIDIA GPU, "GPU-…".
	Device string `json:"device,omitempty"`
	// AllowUnknownDriver allows an NVIDIA driver of an unknown version, without the abilities that
	// need its calls.
	AllowUnknownDriver bool `json:"allow_unknown_driver,omitempty"`
	// Connections is how many hardware channels a context's streams share; 0 is CUDA's own choice.
	Connections int `json:"connections,omitempty"`
	// Socket is the soft GPU's socket.
	Socket string `json:"socket,omitempty"`
	// WarmExecutors reports whether a guest that uses the GPU keeps a spare executor for its next
	// context.
	WarmExecutors bool `json:"warm_executors,omitempty"`
}

// Prepare is what a spare executor needs to know.
type Prepare struct {
	GPU GPU `json:"gpu"`
}

// Setup is what an executor needs to start.
type Setup struct {
	Guest string `json:"guest"`
	// Slot is the context's number in the guest and its slot on the page.
	Slot int `json:"slot"`
	// GPU is the physical GPU that the context is made on.
	GPU GPU `json:"gpu"`
	// Header is the size of the device's part at the start of BAR2, in bytes, and Rings that of the
	// rings' part behind it. No command may name either. If Rings is 0, as with a vm or a guest's
	// driver of an older version, rings may lie anywhere behind the header.
	Header int `json:"header"`
	Rings  int `json:"rings,omitempty"`
	// LastFault is the fault that ended this context's predecessor.
	LastFault string `json:"last_fault,omitempty"`
	// MemoryLimit in bytes; 0 is the GPU's.
	MemoryLimit uint64 `json:"memory_limit,omitempty"`
	// Grant is the memory that this context alone may take, in bytes; 0: as much as the guest may.
	Grant uint64 `json:"grant,omitempty"`
	// Grows reports whether vm takes [KindGrow].
	Grows bool `json:"grows,omitempty"`
	// KernelTimeLimit in nanoseconds; 0 is none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit,omitempty"`
	// Handles reports whether vm takes [KindHandles]; one of an older version does not.
	Handles bool `json:"handles,omitempty"`
	// Saved has the context made anew that was saved, and Closed are the indexes of channels that were
	// closed since.
	Saved  bool  `json:"saved,omitempty"`
	Closed []int `json:"closed,omitempty"`
	// Events says that the message's last file is the event area, BAR4.
	Events bool `json:"events,omitempty"`
	// Sealed has the executor confine itself once it has a context.
	Sealed bool `json:"sealed,omitempty"`
}

// Handles are a context's handles of the GPU's driver; see gpu.Handles.
type Handles struct {
	// Slot is the context's slot.
	Slot int `json:"slot"`
	// GPU is the context's GPU, an index of [Spec].Floats, for a guest that floats.
	GPU int `json:"gpu,omitempty"`
	// Names is opaque to all but the daemon's driver of the GPU.
	Names json.RawMessage `json:"names,omitempty"`
}

// ReadHandles decodes a [KindHandles] message and checks its bounds. The files stay the message's.
func (m *Message) ReadHandles() (Handles, error) {
	var h Handles
	if err := m.Decode(&h); err != nil {
		return Handles{}, err
	}
	switch {
	case h.Slot < 0 || h.Slot >= MaxContexts:
		return Handles{}, fmt.Errorf("handles of context slot %d of %d", h.Slot, MaxContexts)
	case h.GPU < 0 || h.GPU >= MaxGPUs:
		return Handles{}, fmt.Errorf("handles of a context on GPU %d of %d", h.GPU, MaxGPUs)
	case len(m.Files) > MaxHandleFiles:
		return Handles{}, fmt.Errorf("handles with %d files, want at most %d", len(m.Files), MaxHandleFiles)
	case len(h.Names) > MaxHandleNames:
		return Handles{}, fmt.Errorf("handles whose names take %d bytes, want at most %d", len(h.Names), MaxHandleNames)
	}
	return h, nil
}

// Channel is a channel's place in BAR2, which vm has checked.
type Channel struct {
	Index int `json:"index"`
	// Generation distinguishes channels that had the same index one after the other.
	Generation       uint32 `json:"generation"`
	Words            uint64 `json:"words"`
	SubmissionOffset uint64 `json:"submission_offset,omitempty"`
	SubmissionCount  uint32 `json:"submission_count,omitempty"`
	CompletionOffset uint64 `json:"completion_offset,omitempty"`
	CompletionCount  uint32 `json:"completion_count,omitempty"`
	Vector           int    `json:"vector"`
}

// Vector is an interrupt vector.
type Vector struct {
	Index int `json:"index"`
}

// Vectors are interrupt vectors, in the order of their files.
type Vectors struct {
	Indexes []int `json:"indexes"`
}

// Fault is the fault that ended a context.
type Fault struct {
	Code uint32 `json:"code"`
	Text string `json:"text"`
}

// ChannelFailure is the guest's error that ended a channel.
type ChannelFailure struct {
	Index      int    `json:"index"`
	Generation uint32 `json:"generation"`
	Code       uint32 `json:"code"`
}

// Hello introduces a guest's virtual GPU to the daemon. It does not identify the guest: the daemon
// knows the sending process from the kernel, and the guest from its own saved state.
type Hello struct {
	Version string `json:"version"`
	// Tasks are all of the guest's contexts that float. The daemon knows itself which of them it
	// has placed.
	Tasks []Task `json:"tasks,omitempty"`
	// Away are those of them that have left their GPUs.
	Away []Left `json:"away,omitempty"`
	// Grows are what contexts have asked for that need more memory.
	Grows []Grow `json:"grows,omitempty"`
	// Spares are contexts that were made ahead, with memory that an earlier daemon lent.
	Spares []Spare `json:"spares,omitempty"`
}

// Spec is what a guest's virtual GPU was created with.
type Spec struct {
	Name string `json:"name"`
	// Domain and DomainUUID identify the guest's libvirt domain.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	// Granted are the terms that the domain's metadata granted last, or that the guest was created
	// with; nil if they are not known.
	Granted *Terms `json:"granted,omitempty"`
	// Owner and Project are whom the guest's usage is billed to.
	Owner   string `json:"owner,omitempty"`
	Project string `json:"project,omitempty"`
	// Engine names the engine whose scheduler placed the guest; empty if none did.
	Engine string `json:"engine,omitempty"`
	// Socket is the path that the guest's VMM connects to.
	Socket string `json:"socket"`
	// Peer, if set, is the only process that may connect.
	Peer *Peer `json:"peer,omitempty"`
	GPU  GPU   `json:"gpu"`
	// Floats are the GPUs among which each of the guest's contexts that float is placed, up to
	// [MaxGPUs]; GPU, which is one of them, has the others. Empty: the guest does not float.
	Floats []GPU `json:"floats,omitempty"`
	// Alike reports whether they differ in nothing that a program can ask for.
	Alike bool `json:"alike,omitempty"`
	// BAR2Bytes is the size of the memory shared with the guest.
	BAR2Bytes       uint64        `json:"bar2_bytes"`
	MemoryLimit     uint64        `json:"memory_limit,omitempty"`
	KernelTimeLimit time.Duration `json:"kernel_time_limit,omitempty"`
	// Sandbox confines the guest's processes; nil confines nothing.
	Sandbox *Sandbox `json:"cell,omitempty"`
}

// MaxGPUs bounds the GPUs of a guest that floats: it has a control page for each.
const MaxGPUs = 16

// Sandbox is the confinement of a guest's processes. Package sandbox creates it.
type Sandbox struct {
	// UID and GID belong to no other process; 0 means the daemon's own. Groups give access to the
	// GPU.
	UID    int      `json:"uid,omitempty"`
	GID    int      `json:"gid,omitempty"`
	Groups []uint32 `json:"groups,omitempty"`
	// PrivateDevices reports whether the processes have a mount namespace of their own, whose /dev
	// holds Devices beside the nodes that every program needs.
	PrivateDevices bool     `json:"private_devices,omitempty"`
	Devices        []string `json:"devices,omitempty"`
	// PrivateNetwork reports whether they have a network namespace of their own, without a network,
	// and an IPC namespace.
	PrivateNetwork bool `json:"private_network,omitempty"`
	// Cgroup is the directory of the control group, or "" for the daemon's.
	Cgroup string `json:"cgroup,omitempty"`
}

// Peer is a process, by its number or by a file that holds the number and is read each time.
type Peer struct {
	PID     int    `json:"pid,omitempty"`
	PIDFile string `json:"pid_file,omitempty"`
}

// Domain is a libvirt domain; for Granted see [Spec].
type Domain struct {
	Name    string `json:"name"`
	Granted *Terms `json:"granted,omitempty"`
	// Owner and Project are whom the guest's usage is billed to.
	Owner   string `json:"owner,omitempty"`
	Project string `json:"project,omitempty"`
}
