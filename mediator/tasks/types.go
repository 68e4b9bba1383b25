package tasks

import (
	"time"

	"vgpud/fairshare/place"
	"vgpud/mediator/vgpu/abi"
)

// Key names a context that floats.
type Key struct {
	// Guest is the guest's name.
	Guest string
	Slot  int
	// Generation distinguishes contexts that had the same slot one after the other.
	Generation uint32
}

// Request is what a context asks for.
type Request struct {
	abi.TaskRequest
	// Tag is the guest's number for the context.
	Tag uint32
	// Whole has the context ask for its guest's whole limit, whatever that is while it waits. Memory is
	// what the limit was when the guest was created.
	Whole bool
}

// Guest is what a guest that floats was granted.
type Guest struct {
	Weight, Guarantee float64
	// Memory is the limit in bytes of all its tasks together.
	Memory uint64
	// Own is the memory in bytes that the GPUs' driver needs for each task beside what that asks for.
	Own uint64
	// Urgent guests come first, and tasks of others leave for theirs.
	Urgent bool
	// OnHost bounds the bytes of its tasks that have left their GPUs; 0 is no bound.
	OnHost uint64
	// GPUs are those where its tasks may go; 0 is all.
	GPUs place.Set
}

// GPU is what of a GPU is not for tasks at one instant.
type GPU struct {
	// Pinned is the memory in bytes, and PinnedGuarantee the part of its time, that guests have that
	// don't float.
	Pinned          uint64
	PinnedGuarantee float64
	// Busy is the part of the time, 0 to 1, in which it executed something.
	Busy float64
	// Closed GPUs take no new task: they are ill, or an operator keeps guests off them.
	Closed bool
	// Kept is the memory in bytes that guests that don't float may take beside Pinned. No spare gets it;
	// tasks may.
	Kept uint64
}

// Decision is what to tell a guest about one of its tasks, or its spare. One of Granted, Leave, Code,
// Reason and Recall is set.
type Decision struct {
	Key Key
	// Granted is the memory that the task has on GPU from now on, in bytes, after it had waited.
	GPU     int
	Granted uint64
	Waited  time.Duration
	// Left is how often the task had left a GPU before. Want is the request for more memory that Granted
	// answers, which may be less; 0 is none.
	Left uint32
	Want uint64
	// Before is what a task had on GPU that got more memory there; see [Table.Shrink].
	Before uint64
	// Leave says that the task is to leave its GPU, for a reason: see [Table.Left] and [Table.Stayed].
	Leave bool
	Why   place.Why
	// Code says that the task is gone, since it never gets a GPU.
	Code abi.ErrorCode
	// Reason is why it waits on.
	Reason abi.WaitReason
	// Recall is the number of the guest's spare on GPU, which is to end: see [Table.SpareGone].
	Recall uint64
}

// Task is a task as operators see it.
type Task struct {
	Key     Key
	Request Request
	// State is [place.Waiting] too where its guest's own tasks keep it waiting. Placed reports whether it
	// has memory on GPU; else it waits, for Reason, or is parked.
	State  place.State
	Placed bool
	GPU    int
	Reason abi.WaitReason
	// First is what it asked for at first, in bytes; Granted is what it has on GPU, and OnHost what it has in the host's memory.
	First, Granted, OnHost uint64
	// Why is why it leaves or moves.
	Why place.Why
	// Left is how often it has left a GPU.
	Left uint32
	// Warps are the most that it has on its GPU at a time, if its guest said what it launches.
	Warps uint64
	// Asked is when it asked, and Waited how long it waited, or has waited until now.
	Asked, Waited time.Duration
	// Passed counts the tasks behind it that began before it.
	Passed int
}
