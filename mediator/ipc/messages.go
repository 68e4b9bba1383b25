package ipc

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kind says what a message is about.
type Kind string

// Messages between vm and exec.
const (
	// KindSetup (vm to exec) is the first message: body [Setup], files BAR2, the
	// guest's page, and, where vm has it, the file of [Page.SetUntil].
	KindSetup Kind = "setup"
	// KindReady (exec to vm): the context carries out commands, or, with Error
	// set, never will. Its body may then be a [Fault] whose code says why.
	KindReady Kind = "ready"
	// KindOpen and KindShut (vm to exec) open and close a channel: body
	// [Channel]. Each is answered by a message of its kind and ID, with Error
	// set where it failed.
	KindOpen Kind = "open-channel"
	KindShut Kind = "close-channel"
	// KindVector (vm to exec) replaces an interrupt vector's eventfd: body
	// [Vector], file the eventfd, or none where the vector is off.
	KindVector Kind = "vector"
	// KindFault (exec to vm): a kernel ended the GPU context; body [Fault].
	KindFault Kind = "fault"
)

// KindFailed (exec to vm): a channel is not fetched any more; body
// [ChannelFailure].
const KindFailed Kind = "channel-failed"

// KindHandles says by which handles the GPU's driver knows a context: body
// [Handles], files the driver's. exec sends it to vm once after [KindReady], where
// its context has any and the [Setup] says that vm wants them. vm passes them on to
// every daemon, when they come and when the daemon does; when the executor has
// ended, a message without files says so, and that what was passed is to be closed.
const KindHandles Kind = "handles"

// Bounds of a context's handles.
const (
	// MaxHandleFiles is how many files come with them at most.
	MaxHandleFiles = 4
	// MaxHandleNames bounds the names, in bytes.
	MaxHandleNames = 16 << 10
)

// Messages between vm and serve, over the guest's control socket.
const (
	// KindHello (vm to serve) is the first message: body [Hello], file the
	// guest's page.
	KindHello Kind = "hello"
	// KindLog (serve to vm) says where the process's standard error goes from now on: file
	// the daemon's pipe. One of an older version does without.
	KindLog Kind = "log"
	// KindQuit (serve to vm) ends the guest's virtual GPU.
	KindQuit Kind = "quit"
	// KindChanged (vm to serve): a channel or a context came or went, which may call
	// for a decision. Several may come to one message.
	KindChanged Kind = "changed"
)

// GPU names a physical GPU and says how to reach it.
type GPU struct {
	Name string `json:"name"`
	// Kind says which driver opens it: "soft" or "nvidia".
	Kind string `json:"kind"`
	// Device says which of the host's NVIDIA GPUs it is: its UUID, "GPU-…".
	Device string `json:"device,omitempty"`
	// AllowUnknownDriver goes on without the hardware's own abilities where the
	// calls of NVIDIA's driver are not known.
	AllowUnknownDriver bool `json:"allow_unknown_driver,omitempty"`
	// Connections is how many channels of the hardware a context's streams share; 0 is
	// CUDA's own choice.
	Connections int `json:"connections,omitempty"`
	// Socket is the soft GPU's.
	Socket string `json:"socket,omitempty"`
}

// Setup is what an executor needs to begin.
type Setup struct {
	Guest string `json:"guest"`
	// Slot is the context's number in the guest and its slot on the page.
	Slot int `json:"slot"`
	// GPU is the physical GPU that the context is made on.
	GPU GPU `json:"gpu"`
	// Header is how much of BAR2's start is the device's, in bytes, and Rings how
	// much behind it is for rings: no command may name either. With Rings 0, as a vm
	// of an older version has it, and one whose guest's driver is older, rings may lie
	// anywhere behind the header.
	Header int `json:"header"`
	Rings  int `json:"rings,omitempty"`
	// LastFault is what ended this context's predecessor.
	LastFault string `json:"last_fault,omitempty"`
	// MemoryLimit in bytes; 0 is the GPU's.
	MemoryLimit uint64 `json:"memory_limit,omitempty"`
	// KernelTimeLimit in nanoseconds; 0 is none.
	KernelTimeLimit time.Duration `json:"kernel_time_limit,omitempty"`
	// Handles is whether vm takes [KindHandles]; one of an older version does not.
	Handles bool `json:"handles,omitempty"`
	// Sealed has the executor confine itself once it has a context.
	Sealed bool `json:"sealed,omitempty"`
}

// Handles name a context to the GPU's driver; see gpu.Handles.
type Handles struct {
	// Slot is the context's.
	Slot int `json:"slot"`
	// Names is for the daemon's driver of the GPU alone to understand.
	Names json.RawMessage `json:"names,omitempty"`
}

// ReadHandles reads a [KindHandles] message, and refuses one that is not as it
// should be. The files stay the message's.
func (m *Message) ReadHandles() (Handles, error) {
	var h Handles
	if err := m.Decode(&h); err != nil {
		return Handles{}, err
	}
	switch {
	case h.Slot < 0 || h.Slot >= MaxContexts:
		return Handles{}, fmt.Errorf("handles of context slot %d of %d", h.Slot, MaxContexts)
	case len(m.Files) > MaxHandleFiles:
		return Handles{}, fmt.Errorf("handles with %d files, want at most %d", len(m.Files), MaxHandleFiles)
	case len(h.Names) > MaxHandleNames:
		return Handles{}, fmt.Errorf("handles whose names take %d bytes, want at most %d", len(h.Names), MaxHandleNames)
	}
	return h, nil
}

// Channel is a channel's place in BAR2, checked by vm.
type Channel struct {
	Index int `json:"index"`
	// Generation tells the lives of one index apart.
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

// Fault is what ended a context.
type Fault struct {
	Code uint32 `json:"code"`
	Text string `json:"text"`
}

// ChannelFailure is what ended a channel.
type ChannelFailure struct {
	Index      int    `json:"index"`
	Generation uint32 `json:"generation"`
	Code       uint32 `json:"code"`
}

// Hello is a guest's virtual GPU introducing itself to the daemon, which knows by its own
// notes who the guest is, and by the kernel which process says it.
type Hello struct {
	Version string `json:"version"`
}

// Spec is what a guest's virtual GPU was made with.
type Spec struct {
	Name string `json:"name"`
	// Domain and DomainUUID are the libvirt domain's that the guest is.
	Domain     string `json:"domain,omitempty"`
	DomainUUID string `json:"domain_uuid,omitempty"`
	// Granted are the terms that the domain's metadata has granted last, or that
	// the guest was made with; nil where that is not known.
	Granted *Terms `json:"granted,omitempty"`
	// Socket is where its VMM connects.
	Socket string `json:"socket"`
	// Peer, if set, is the only process that may connect.
	Peer *Peer `json:"peer,omitempty"`
	GPU  GPU   `json:"gpu"`
	// BAR2Bytes is the size of the memory shared with the guest.
	BAR2Bytes       uint64        `json:"bar2_bytes"`
	MemoryLimit     uint64        `json:"memory_limit,omitempty"`
	KernelTimeLimit time.Duration `json:"kernel_time_limit,omitempty"`
	// Sandbox confines the guest's processes; nil confines nothing.
	Sandbox *Sandbox `json:"cell,omitempty"`
}

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
	// Cgroup is the directory of the control group, or "" for the daemon's.
	Cgroup string `json:"cgroup,omitempty"`
}

// Peer is a process, by its number or by a file that holds the number and is
// read each time.
type Peer struct {
	PID     int    `json:"pid,omitempty"`
	PIDFile string `json:"pid_file,omitempty"`
}

// Domain is a libvirt domain; for Granted see [Spec].
type Domain struct {
	Name    string `json:"name"`
	Granted *Terms `json:"granted,omitempty"`
}
