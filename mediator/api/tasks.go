package api

import "fmt"

// The states of a task.
const (
	// TaskWaits: no GPU has room for it yet.
	TaskWaits = "waits"
	// TaskPlaced: it has its memory on a GPU.
	TaskPlaced = "placed"
	// TaskGrowing: it is on a GPU, and waits for more memory.
	TaskGrowing = "growing"
	// TaskMoving: it is to go on on another GPU, and has memory on both.
	TaskMoving = "moving"
	// TaskLeaving: it is to leave its GPU. Its memory goes to the host.
	TaskLeaving = "leaving"
	// TaskParked: its memory is on the host, and it has nothing to do.
	TaskParked = "parked"
)

// TaskStates are all states of tasks.
var TaskStates = []string{TaskWaits, TaskPlaced, TaskGrowing, TaskMoving, TaskLeaving, TaskParked}

// Task is a GPU task in CASE's words: a context of a guest that floats.
type Task struct {
	VM     string `json:"vm"`
	Domain string `json:"domain,omitempty"`
	// Context is its slot in the guest, and Tag a number of the guest's choice, such as a process id
	// there.
	Context int    `json:"context"`
	Tag     uint32 `json:"tag,omitempty"`
	State   string `json:"state"`
	// GPU is where it is placed, and Why why it waits, leaves or moves.
	GPU string `json:"gpu,omitempty"`
	Why string `json:"why,omitempty"`
	// MemoryBytes is what it asks for, and has once it is placed.
	MemoryBytes uint64 `json:"memory_bytes"`
	// OnHostBytes is what it has in the host's memory while it is on no GPU. Moves counts how often it
	// has left a GPU.
	OnHostBytes uint64 `json:"on_host_bytes,omitempty"`
	Moves       int    `json:"moves,omitempty"`
	// Blocks and Threads are its largest launch as the guest says, and Warps how many of that are on
	// its GPU at a time; 0 if the guest does not say.
	Blocks  uint32 `json:"blocks,omitempty"`
	Threads uint32 `json:"threads,omitempty"`
	Warps   uint64 `json:"warps,omitempty"`
	// WaitedSeconds is how long it waited, or has waited until now.
	WaitedSeconds float64 `json:"waited_seconds"`
	// Passed counts the tasks that began although they were behind it.
	Passed int `json:"passed,omitempty"`
}

// Name names the task among the host's: "VM/CONTEXT".
func (t *Task) Name() string { return fmt.Sprintf("%s/%d", t.VM, t.Context) }

// Tasks are the host's tasks, in order of their guests' names and of asking.
type Tasks struct {
	Tasks []Task `json:"tasks"`
	// Waits counts how long each task waited that was placed since the daemon started.
	Waits Histogram `json:"waits,omitzero"`
	// Moves counts the tasks that left a GPU since the daemon started.
	Moves TaskMoves `json:"moves,omitzero"`
}

// TaskMoves counts tasks that left a GPU, by why: for more memory, for an urgent guest's task, and
// because others waited for memory that they did not use.
type TaskMoves struct {
	Growth uint64 `json:"growth,omitempty"`
	Urgent uint64 `json:"urgent,omitempty"`
	Idle   uint64 `json:"idle,omitempty"`
}
