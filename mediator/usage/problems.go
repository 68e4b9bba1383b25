package usage

import (
	"context"
	"fmt"

	"vgpud/mediator/events"
)

// try calls f unless a fault is simulated.
func (r *Recorder) try(f func() error) error {
	if r.o.Fault != nil {
		if err := r.o.Fault(); err != nil {
			return err
		}
	}
	return f()
}

// failed does what an error of the store calls for.
//
// Preconditions: r.writing is held.
func (r *Recorder) failed(s *store, err error) {
	switch {
	case isCorrupt(err):
		r.replaceCorrupt(s, err)
	case isFull(err) && s.full():
		what, serr := s.shrink(context.Background())
		if serr != nil {
			r.setProblem(fmt.Sprintf("usage is not recorded: %s is as large as it may be: %v", r.o.Path, serr))
			return
		}
		r.o.Log.Warn("the usage record is as large as it may be, and its oldest rows are removed", events.Kind(events.UsageProblem), "path", r.o.Path, "removed", what)
	default:
		r.setProblem(fmt.Sprintf("usage is not recorded: %s: %v; it is kept in memory as far as there is room: %s", r.o.Path, err, advice(err)))
	}
}

// advice says what an operator can do about an error.
func advice(err error) string {
	switch {
	case isFull(err):
		return "make room on its disk"
	case isReadOnly(err):
		return "make its file system writable"
	default:
		return "check its disk and its directory"
	}
}

// setProblem notes, and logs once, what is wrong; empty is nothing.
func (r *Recorder) setProblem(problem string) {
	r.mu.Lock()
	before := r.problem
	r.problem = problem
	lost := r.backlog.lost
	if problem == "" {
		r.backlog.lost = Sums{}
	}
	r.mu.Unlock()
	switch {
	case problem == before:
	case problem != "":
		r.o.Log.Error("usage record", events.Kind(events.UsageProblem), "problem", problem)
	default:
		r.o.Log.Info("usage is recorded again", events.Kind(events.UsageRecovered), "path", r.o.Path)
		if !lost.zero() {
			r.o.Log.Error("usage that did not fit into memory is lost", events.Kind(events.UsageProblem), "gpu_time", lost.GPUTime(), "kernels", lost.Kernels)
		}
	}
}

// Problems returns what is wrong with the record: why nothing is recorded, and that a corrupt
// database was replaced.
func (r *Recorder) Problems() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range []string{r.problem, r.quarantined} {
		if p != "" {
			all = append(all, p)
		}
	}
	return all
}
