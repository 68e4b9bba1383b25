package slotstate

import "fmt"

// A State is where a launch stands.
type State uint8

// The states. Beside each, who brings a launch into it.
const (
	None    State = iota // nobody: the stub was never used
	Prep                 // executor: the stub is claimed, and is being filled in
	Ready                // executor: it could run, and waits for its turn
	ToRun                // daemon: it is its turn
	Running              // executor: it is on the GPU
	ToEvict              // daemon: it is to leave the GPU
	Done                 // executor: it has ended; the stub may be used again

	states = iota
)

var stateNames = [...]string{"none", "prep", "ready", "to run", "running", "to evict", "done"}

// String is the state's name in output.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Valid is whether there is such a state: others are what somebody wrote who is no
// executor any more.
func (s State) Valid() bool { return s < states }

// OnGPU is whether the launch is there, or on its way.
func (s State) OnGPU() bool { return s == ToRun || s == Running || s == ToEvict }

// A Cause is why a launch goes from one state to another.
type Cause uint8

// The causes, with the transitions that each makes.
const (
	// Claimed takes a free stub for a new launch: None or Done to Prep.
	Claimed Cause = iota
	// Initialised ends the preparation: Prep to Ready.
	Initialised
	// Scheduled gives the launch its turn: Ready to ToRun. The daemon's, and the
	// executor's own where the daemon is silent or decides about guests only.
	Scheduled
	// Withdrawn takes its turn back from one that has not used it: ToRun to Ready. The
	// daemon's.
	Withdrawn
	// Launched puts it on the GPU: ToRun to Running, and Ready to Running where its turn
	// was taken back when it was as good as there. One that was told to leave before it
	// began, and goes there all the same since it may keep some SMs, stays in ToEvict; one
	// that was recalled before it began stays in Running.
	Launched
	// Asked tells it to leave: Running to ToEvict, and ToRun to ToEvict where it has its
	// turn and is not on the GPU yet. The daemon's.
	Asked
	// Recalled takes that back: ToEvict to Running. The daemon's, which need not know
	// whether the launch has begun.
	Recalled
	// Left says that it left with work undone: ToEvict to Ready, also where it had not
	// begun, and Running to Ready where nobody had asked.
	Left
	// Finished says that all of it is done: Running or ToEvict to Done.
	Finished
	// Abandoned ends it with its context or channel: every state in between to
	// Done.
	Abandoned

	causes = iota
)

var causeNames = [...]string{"claimed", "initialised", "scheduled", "withdrawn", "launched", "asked to leave", "recalled", "left", "finished", "abandoned"}

// String is the cause's name in output.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// next is the machine: what is not in it is [None], and refused.
var next = [states][causes]State{
	None:    {Claimed: Prep},
	Prep:    {Initialised: Ready, Abandoned: Done},
	Ready:   {Scheduled: ToRun, Launched: Running, Abandoned: Done},
	ToRun:   {Withdrawn: Ready, Launched: Running, Asked: ToEvict, Abandoned: Done},
	Running: {Launched: Running, Asked: ToEvict, Left: Ready, Finished: Done, Abandoned: Done},
	ToEvict: {Launched: ToEvict, Recalled: Running, Left: Ready, Finished: Done, Abandoned: Done},
	Done:    {Claimed: Prep},
}

// A RefusedError is a cause that does not apply in a state.
type RefusedError struct {
	State State
	Cause Cause
}

// Error names both.
func (e RefusedError) Error() string {
	return fmt.Sprintf("a launch that is %v can't be %v", e.State, e.Cause)
}

// Next is the state that follows s for a cause, or a [RefusedError], with the
// state as it was.
func Next(s State, c Cause) (State, error) {
	if int(s) < states && int(c) < causes {
		if n := next[s][c]; n != None {
			return n, nil
		}
	}
	return s, RefusedError{s, c}
}
