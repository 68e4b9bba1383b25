package slotstate

import "fmt"

// A State is where a launch stands.
type State uint8

// The states, with the process that brings a launch into each.
const (
	None    State = iota // the slot was never used
	Prep                 // executor: the slot is claimed, and is being filled in
	Ready                // executor: the launch waits for its turn
	ToRun                // daemon: the launch has its turn
	Running              // executor: the launch is on the GPU
	ToEvict              // daemon: the launch is to leave the GPU
	Done                 // executor: the launch has ended; the slot may be used again

	states = iota
)

var stateNames = [...]string{"none", "prep", "ready", "to run", "running", "to evict", "done"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Valid reports whether s is one of the states. A process that no longer keeps to the protocol may
// have written another.
func (s State) Valid() bool { return s < states }

// OnGPU reports whether the launch is on the GPU or has the turn to go there.
func (s State) OnGPU() bool { return s == ToRun || s == Running || s == ToEvict }

// A Cause is the reason why a launch goes from one state to another.
type Cause uint8

// The causes, with their transitions.
const (
	// Claimed takes a free slot for a new launch: None or Done to Prep.
	Claimed Cause = iota
	// Initialised ends the preparation: Prep to Ready.
	Initialised
	// Scheduled gives the launch its turn: Ready to ToRun. It is the daemon's, and the executor's
	// own where the daemon is silent or decides about guests only.
	Scheduled
	// Withdrawn takes an unused turn back: ToRun to Ready. It is the daemon's.
	Withdrawn
	// Launched puts the launch on the GPU: ToRun to Running. ToEvict and Running stay: the daemon may
	// tell a launch to leave, or to stay after all, before the launch has started. In Ready it is
	// refused: the daemon has taken the turn back, and another launch may have it.
	Launched
	// Asked tells the launch to leave: ToRun or Running to ToEvict. It is the daemon's.
	Asked
	// Recalled tells the launch that it may stay: ToEvict to Running. It is the daemon's, which
	// need not know whether the launch has started.
	Recalled
	// Evicted reports that the launch left with work undone: ToEvict to Ready, whether or not it
	// had started, and Running to Ready where nobody had asked.
	Evicted
	// Finished reports that all of the launch is done: Running or ToEvict to Done.
	Finished
	// Abandoned ends the launch with its context or channel: any state but None to Done.
	Abandoned

	causes = iota
)

var causeNames = [...]string{"claimed", "initialised", "scheduled", "withdrawn", "launched", "asked to leave", "recalled", "evicted", "finished", "abandoned"}

// String returns the cause's name.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}

// next is the state machine. A transition that it lacks is None, and refused.
var next = [states][causes]State{
	None:    {Claimed: Prep},
	Prep:    {Initialised: Ready, Abandoned: Done},
	Ready:   {Scheduled: ToRun, Abandoned: Done},
	ToRun:   {Withdrawn: Ready, Launched: Running, Asked: ToEvict, Abandoned: Done},
	Running: {Launched: Running, Asked: ToEvict, Evicted: Ready, Finished: Done, Abandoned: Done},
	ToEvict: {Launched: ToEvict, Recalled: Running, Evicted: Ready, Finished: Done, Abandoned: Done},
	Done:    {Claimed: Prep},
}

// A RefusedError is a cause that does not apply in a state.
type RefusedError struct {
	State State
	Cause Cause
}

// Error names the state and the cause.
func (e RefusedError) Error() string {
	return fmt.Sprintf("a launch that is %v can't be %v", e.State, e.Cause)
}

// Next returns the state that follows s for a cause, or s and a [RefusedError].
func Next(s State, c Cause) (State, error) {
	if int(s) < states && int(c) < causes {
		if n := next[s][c]; n != None {
			return n, nil
		}
	}
	return s, RefusedError{s, c}
}
