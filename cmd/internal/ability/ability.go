// Package ability is how it is said what a host can do: by the processes that find it
// out, and to the operator.
package ability

import "fmt"

// State is whether an ability is there.
type State string

// The states.
const (
	Present State = "yes"
	Absent  State = "no"
	// Unknown is where it could not be looked at, for want of rights mostly.
	Unknown State = "unknown"
)

// Ability is one thing that a host can do, or can't.
type Ability struct {
	Name string `json:"name"`
	// GPU is the GPU whose it is, empty where it is the host's.
	GPU   string `json:"gpu,omitempty"`
	State State  `json:"state"`
	// What was found, or why it is not there.
	What string `json:"what"`
	// Do is what an operator can do about it; empty where there is nothing to do.
	Do string `json:"do,omitempty"`
	// Needed is whether guests can't have a GPU at all without it.
	Needed bool `json:"needed"`
}

// Report is what a process found out.
type Report struct {
	Abilities []Ability `json:"abilities"`
}

// Here is an ability that is there.
func Here(name, format string, args ...any) Ability {
	return Ability{Name: name, State: Present, What: fmt.Sprintf(format, args...)}
}

// Missing is an ability that is not there, and what to do about it.
func Missing(name, why, do string) Ability {
	return Ability{Name: name, State: Absent, What: why, Do: do}
}

// Hidden is an ability that could not be looked at, and what to do about that.
func Hidden(name, why, do string) Ability {
	return Ability{Name: name, State: Unknown, What: why, Do: do}
}
