// Package ability describes what a host can do, from the processes that find it out to the
// operator.
package ability

import "fmt"

// State reports whether an ability is there.
type State string

// The states.
const (
	Present State = "yes"
	Absent  State = "no"
	// Unknown means that it could not be checked, mostly for lack of rights.
	Unknown State = "unknown"
)

// Ability is one thing that a host can or can't do.
type Ability struct {
	Name string `json:"name"`
	// GPU is the GPU that the ability belongs to, or "" for the host.
	GPU   string `json:"gpu,omitempty"`
	State State  `json:"state"`
	// What is the ability as it was found, or why it is not there.
	What string `json:"what"`
	// Do is what an operator can do about it, or "" for nothing.
	Do string `json:"do,omitempty"`
	// Needed reports whether guests can't have a GPU at all without it.
	Needed bool `json:"needed"`
}

// Report is the output of a process that checks abilities.
type Report struct {
	Abilities []Ability `json:"abilities"`
}

// Available returns an ability that is there.
func Available(name, format string, args ...any) Ability {
	return Ability{Name: name, State: Present, What: fmt.Sprintf(format, args...)}
}

// Missing returns an ability that is not there, with what to do about it.
func Missing(name, why, do string) Ability {
	return Ability{Name: name, State: Absent, What: why, Do: do}
}

// Undetermined returns an ability that could not be checked, with what to do about that.
func Undetermined(name, why, do string) Ability {
	return Ability{Name: name, State: Unknown, What: why, Do: do}
}
