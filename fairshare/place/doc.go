// Package place decides on which GPU of a host a task runs, and which task begins next, by the rules
// of CASE (Chen, Porter, Pande: CASE, PPoPP 2022). It is pure: no clock, no goroutine, no I/O, and
// therefore no locks. Callers tell it the time, carry out what it says, and tell it what happened.
// They know what a task is and how its memory moves.
//
// A task asks for memory and for room for the thread blocks of its largest grid ([Request]). A
// [Placer] chooses a GPU for it:
//
//	Warps      CASE's algorithm 3: memory is a bound, then the fewest warps in use
//	GridWarps  the same by the warps of whole grids, as the paper counts
//	Blocks     CASE's algorithm 2: memory and SMs are bounds, the first GPU that fits
//	LeastBusy  memory is a bound, then the least busy by accounting
//
// A [Queue] holds the tasks of all guests. The flow:
//
//	Submit ─► waiting ─Begin─► placed ─Free─► gone
//	             ▲               │ Grow: waits for memory on its GPU, or moves to another
//	             └──Left─────────┘ Leave: its memory goes to the host, and it waits again
//
// The order is by memory-time divided by weight, over all of a guest's tasks: the guest with the
// least comes first. A task behind another may begin if the other does not fit now. After
// [Config].Patience, memory is kept for the one that was passed.
//
// A task that asks for more memory never deadlocks with others that do: it moves to a GPU with
// room, or leaves for the host if all tasks of its GPU wait for memory, or if it waited long.
package place
