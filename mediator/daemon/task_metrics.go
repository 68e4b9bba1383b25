package daemon

import (
	"vgpud/mediator/api"
	"vgpud/mediator/exposition"
	"vgpud/mediator/tasks"
)

var (
	taskStates = exposition.NewFamily(gauge, "vgpud_tasks", "Contexts of guests that float, by state: waits for a GPU, or placed on one.", "state")
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
	for _, state := range []string{api.TaskWaits, api.TaskPlaced} {
		n := 0
		for i := range all.Tasks {
			if all.Tasks[i].State == state {
				n++
			}
		}
		to.Sample(taskStates, exposition.With(state), float64(n))
	}
	to.Distribution(taskWaits, exposition.With(), distribution(&all.Waits, waitBounds, noWaits))
}
