package abi

// ContextFlagsBits are the bits of a context's FLAGS register.
type ContextFlagsBits uint32

const (
	// ContextFloats has the host go by the context's row of the task table when it chooses a GPU for
	// the context. Needs [FeatureFloating]. Without the flag a context of a guest that floats asks
	// for all the memory that the guest may have.
	ContextFloats ContextFlagsBits = 1 << iota

	contextFlagsEnd
)

// AllContextFlags is every flag of a context that this package knows.
const AllContextFlags = contextFlagsEnd - 1

// MaxTaskThreads is the most threads that a block of any GPU has.
const MaxTaskThreads = 1024

// maxTaskMemory is more memory than any host has. Sums of so few requests as a host has don't
// overflow.
const maxTaskMemory = 1 << 50

// TaskRequest is what a context that floats asks for: a GPU task, in CASE's words.
type TaskRequest struct {
	// Memory is the GPU memory that the context may take, in bytes, all that it will ever need.
	Memory uint64
	// Blocks is the most thread blocks of any of its launches, and Threads the most threads of a
	// block; 0 if the guest doesn't know.
	Blocks, Threads uint32
}

// taskRequestWords is how many registers of a row are the request.
const taskRequestWords = TaskStatus / 4

// TaskRequestWords are the registers of a row of the task table that the guest writes, in their
// order.
type TaskRequestWords [taskRequestWords]uint32

// DecodeTaskRequest returns the request in a row of the task table, or why it is refused.
func DecodeTaskRequest(w *TaskRequestWords) (TaskRequest, ErrorCode) {
	q := TaskRequest{
		Memory: uint64(w[TaskMemoryLo/4]) | uint64(w[TaskMemoryHi/4])<<32,
		Blocks: w[TaskBlocks/4], Threads: w[TaskThreads/4],
	}
	switch {
	case w[TaskFlags/4] != 0:
		return TaskRequest{}, ErrorBadFlags
	case q.Memory == 0 || q.Threads > MaxTaskThreads || (q.Blocks == 0) != (q.Threads == 0):
		return TaskRequest{}, ErrorBadRequest
	case q.Memory > maxTaskMemory:
		return TaskRequest{}, ErrorNoRoom
	}
	return q, ErrorNone
}

// Encode returns the registers that make the request.
func (q TaskRequest) Encode() TaskRequestWords {
	return TaskRequestWords{uint32(q.Memory), uint32(q.Memory >> 32), q.Blocks, q.Threads, 0}
}

// A TaskState is the state of a context's row of the task table.
type TaskState uint32

// The states of a row.
const (
	TaskNone   TaskState = 0 // the context does not float, or is free
	TaskWaits  TaskState = 1 // no GPU was chosen yet
	TaskPlaced TaskState = 2 // its GPU was chosen, and its memory is granted
)

var taskStateNames = []string{"none", "waits", "placed"}

// String returns the state's name.
func (s TaskState) String() string { return nameOf(uint32(s), taskStateNames, "state") }

// A WaitReason says why a context that floats waits for a GPU.
type WaitReason uint32

// The reasons.
const (
	WaitNone    WaitReason = 0 // it does not wait
	WaitMemory  WaitReason = 1 // no GPU has as much memory left
	WaitCompute WaitReason = 2 // no GPU has the blocks and warps left
	WaitQueue   WaitReason = 3 // others waited for longer, or are owed more
	WaitGuest   WaitReason = 4 // the guest's own contexts have what its memory limit allows
	WaitGPU     WaitReason = 5 // no GPU takes new work now: all are ill or cordoned
	WaitDaemon  WaitReason = 6 // the host's daemon, which decides, does not run
)

var waitReasonTexts = []string{
	"it does not wait",
	"no GPU has as much memory left",
	"no GPU has the blocks and warps left",
	"others waited for longer, or are owed more",
	"the guest's own contexts have what its memory limit allows",
	"no GPU takes new work",
	"the host's daemon does not run",
}

// String returns the reason's text.
func (r WaitReason) String() string { return nameOf(uint32(r), waitReasonTexts, "reason") }
