package daemon

import (
	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
	"vgpud/mediator/tasks"
)

var (
	taskStates = exposition.NewFamily(gauge, "vgpud_tasks", "Contexts of guests that float, by state: waits for a GPU; placed on one; growing, moving or leaving there; or parked, with nothing to do and its memory on the host.", "state")
	taskMoves  = exposition.NewFamily(counter, "vgpud_task_moves_total", "Contexts that float and have left a GPU, since the daemon started: for more memory (growth), for an urgent guest's (urgent), or because others waited for memory that they did not use (idle).", "why")
	taskWaits  = exposition.NewFamily(exposition.Histogram, "vgpud_task_wait_seconds", "Time for which contexts that float waited until they were placed, since the daemon started.")
)

// waitBounds are the upper bounds of how long tasks waited, in seconds, and noWaits has 0 for each.
var (
	waitBounds = func() (bounds []float64) {
		for _, b := range tasks.WaitBounds {
			bounds = append(bounds, b.Seconds())
		}
		return bounds
	}()
	noWaits = make([]uint64, len(waitBounds))
)

// collectTasks collects the series of the host's tasks.
func collectTasks(to exposition.Sink, all api.Tasks) {
	for _, state := range api.TaskStates {
		n := 0
		for i := range all.Tasks {
			if all.Tasks[i].State == state {
				n++
			}
		}
		to.Sample(taskStates, exposition.With(state), float64(n))
	}
	to.Sample(taskMoves, exposition.With("growth"), float64(all.Moves.Growth))
	to.Sample(taskMoves, exposition.With("urgent"), float64(all.Moves.Urgent))
	to.Sample(taskMoves, exposition.With("idle"), float64(all.Moves.Idle))
	to.Distribution(taskWaits, exposition.With(), distribution(&all.Waits, waitBounds, noWaits))
}
