package place

import (
	"slices"
	"time"
)

// charge adds the memory-time since the last charge.
func (g *guest) charge(now time.Duration) {
	if now > g.at {
		g.used += float64(g.held) * (now - g.at).Seconds() / g.Weight
		g.at = now
	}
}

// put gives a task its memory and computing on a GPU.
func (q *Queue) put(now time.Duration, t *task, gpu int) {
	g, d := t.guest, &q.gpus[gpu]
	g.charge(now)
	t.state, t.gpu, t.since = Placed, gpu, now
	t.quiet, t.passed, t.passedBy, t.stays = false, false, 0, false
	q.grant(now, t, t.req.Memory)
	q.occupy(t, d)
}

// occupy counts a task's computing on a GPU.
func (q *Queue) occupy(t *task, d *GPU) {
	d.warps += d.residentWarps(&t.req)
	d.gridWarps += gridWarps(&t.req)
	d.tasks = append(d.tasks, t)
	if q.tracked {
		t.onSMs = d.sms.take(&d.Spec, &t.req)
	}
	if t.guest.on[t.gpu]++; t.guest.on[t.gpu] == 1 {
		d.guarantee += t.guest.Guarantee
	}
}

// vacate takes a task's computing from a GPU.
func (q *Queue) vacate(t *task, gpu int) {
	d := &q.gpus[gpu]
	d.warps -= d.residentWarps(&t.req)
	d.gridWarps -= gridWarps(&t.req)
	d.tasks = slices.DeleteFunc(d.tasks, func(o *task) bool { return o == t })
	if q.tracked {
		d.sms.give(&d.Spec, &t.req, t.onSMs)
		t.onSMs = nil
	}
	if t.guest.on[gpu]--; t.guest.on[gpu] == 0 {
		d.guarantee -= t.guest.Guarantee
	}
}

// grant changes what a task has on its GPU.
func (q *Queue) grant(now time.Duration, t *task, memory uint64) {
	t.guest.charge(now)
	q.gpus[t.gpu].granted += memory - t.grant
	t.guest.held += memory - t.grant
	t.grant = memory
}

// leave gives up what a task has on the GPU that it moves away from.
func (q *Queue) leave(now time.Duration, t *task) {
	t.guest.charge(now)
	q.gpus[t.from].granted -= t.left
	t.guest.held -= t.left
	t.left = 0
}

// takeOff gives up all that a task has on GPUs.
func (q *Queue) takeOff(now time.Duration, t *task) {
	if t.state == Growing {
		q.growing = slices.DeleteFunc(q.growing, func(o *task) bool { return o == t })
	}
	if t.state == Moving {
		q.leave(now, t)
	}
	q.grant(now, t, 0)
	q.vacate(t, t.gpu)
}

// keep keeps memory for a waiting task on a GPU.
func (q *Queue) keep(t *task, gpu int) {
	t.kept = gpu
	q.kept[gpu] = append(q.kept[gpu], t)
}

// unkeep gives back what is kept for a task.
func (q *Queue) unkeep(t *task) {
	if t.kept < 0 {
		return
	}
	q.kept[t.kept] = slices.DeleteFunc(q.kept[t.kept], func(o *task) bool { return o == t })
	t.kept = -1
}
