package executor

import "fmt"

// jobState is what a job waits for.
type jobState uint8

const (
	_              jobState = iota // no state
	waiting                        // its turn
	preparing                      // what the kernel is to find in GPU memory
	running                        // the kernel's end
	leaving                        // the kernel's end; the kernel was told to leave
	refilling                      // its evict word to be zero again, to relaunch the blocks that left
	deferred                       // the kernel's end; it does nothing until the launch before it is over
	preempted                      // its turn, off the GPU in mid-kernel
	readingControl                 // its control block
	readingSkipped                 // its record of skipped units
	over                           // nothing

	jobStates = iota
)

var jobStateNames = [jobStates]string{
	"none", "waiting", "preparing", "running", "leaving", "refilling", "deferred", "preempted", "reading control", "reading skipped", "over",
}

// String returns the state's name.
func (s jobState) String() string { return jobStateNames[s] }

// onGPU reports whether the job's kernel is on the GPU.
func (s jobState) onGPU() bool { return s >= running && s <= deferred }

// hasRoom reports whether the job has room on the GPU: see admission.
func (s jobState) hasRoom() bool { return s > waiting && s < over }

// jobEvent is what takes a job from one state to another.
type jobEvent uint8

const (
	turnCame        jobEvent = iota // it has its turn, and room on the GPU
	turnLost                        // its turn was taken back, or it is not the next of its channel
	kernelLaunched                  // its kernel was put on the GPU
	evictionAsked                   // the daemon told it to leave
	evictionRecall                  // the daemon told it that it may stay
	refillWanted                    // it may take the SMs that it has left
	refillDone                      // it took them, or could not
	earlierLeaves                   // the launch before it was told to leave
	kernelPreempted                 // the hardware took its context off the GPU
	contextResumed                  // its context is back
	kernelLeft                      // its kernel has left the GPU
	skippedWanted                   // its record of skipped units is needed
	workRemains                     // it goes on at once
	turnGivenUp                     // it goes on in its next turn
	jobEnded                        // it is done, or failed

	jobEvents = iota
)

// nextJobState is the state machine of a job. A transition that it lacks is an error of the
// executor's.
var nextJobState = [jobStates][jobEvents]jobState{
	waiting:        {turnCame: preparing, turnGivenUp: waiting, jobEnded: over},
	preparing:      {turnLost: waiting, turnGivenUp: waiting, kernelLaunched: running, jobEnded: over},
	running:        {evictionAsked: leaving, earlierLeaves: deferred, kernelLeft: readingControl, jobEnded: over},
	leaving:        {evictionAsked: leaving, evictionRecall: running, refillWanted: refilling, earlierLeaves: deferred, kernelPreempted: preempted, kernelLeft: readingControl, jobEnded: over},
	refilling:      {evictionAsked: leaving, earlierLeaves: deferred, refillDone: running, kernelLeft: readingControl, jobEnded: over},
	deferred:       {evictionAsked: deferred, evictionRecall: deferred, kernelPreempted: preempted, kernelLeft: readingControl, jobEnded: over},
	preempted:      {turnGivenUp: preempted, earlierLeaves: deferred, contextResumed: running, jobEnded: over},
	readingControl: {skippedWanted: readingSkipped, workRemains: preparing, turnGivenUp: waiting, jobEnded: over},
	readingSkipped: {workRemains: preparing, turnGivenUp: waiting, jobEnded: over},
}

// to takes the job to the state after e, and gives its room on the GPU back if it has none in that
// state. A transition that there is not is an error of this package: the process ends, and with it
// the guest's context.
func (j *job) to(e jobEvent) {
	next := nextJobState[j.state][e]
	if next == 0 {
		panic(fmt.Sprintf("executor: event %d of a job that is %v", e, j.state))
	}
	if j.state.hasRoom() && !next.hasRoom() {
		j.ch.x.release(j.p.estimate)
	}
	j.state = next
}
