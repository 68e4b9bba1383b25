package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/fairshare/place"
)

// mishap is what went wrong in random mixes.
type mishap struct {
	// oom is how often a GPU's memory was exceeded, or a task began with less than it asked for.
	oom int
	// stuck is how many mixes had tasks that nothing could make go on.
	stuck int
	// passed is the longest time for which a task was passed.
	passed time.Duration
	// Counts of tasks, growth, moves to another GPU, moves to the host, deaths of guests and lost
	// GPUs.
	tasks, grown, moved, left, deaths, lost int
}

// add adds another mix's.
func (m *mishap) add(o mishap) {
	m.oom += o.oom
	m.stuck += o.stuck
	m.passed = max(m.passed, o.passed)
	m.tasks += o.tasks
	m.grown += o.grown
	m.moved += o.moved
	m.left += o.left
	m.deaths += o.deaths
	m.lost += o.lost
}

// chaos is a random mix of tasks that grow, idle and end, on GPUs that are lost and come back, of
// guests that die. It keeps books of its own about memory.
type chaos struct {
	r      *rand.Rand
	q      *place.Queue
	specs  []place.Spec
	now    time.Duration
	seq    int
	queue  timers
	woken  time.Duration
	tasks  map[place.TaskID]*member
	memory []uint64
	found  mishap
}

// member is a task of a mix.
type member struct {
	id    place.TaskID
	guest fairshare.GuestID
	left  time.Duration // to compute
	size  uint64
	grow  int // how often it still asks for more
	on    []uint64
	stop  bool // it waits for memory, or for a GPU
	turn  int  // of the timers that are for it
	idle  bool
}

// stir runs the mix of a seed to its end.
func stir(seed uint64) mishap {
	r := rand.New(rand.NewPCG(seed, 10_000))
	c := &chaos{r: r, tasks: make(map[place.TaskID]*member)}
	for range 1 + r.IntN(8) {
		c.specs = append(c.specs, place.Spec{
			Memory: uint64(8+r.IntN(73)) * gib, SMs: 16 + r.IntN(100), WarpsPerSM: 64, BlocksPerSM: 32,
		})
	}
	c.memory = make([]uint64, len(c.specs))
	placer := []place.Placer{place.Warps{}, place.GridWarps{}, place.LeastBusy{}, place.Blocks{}}[r.IntN(4)]
	q, err := place.NewQueue(place.Config{Placer: placer}, c.specs)
	must(err)
	c.q = q
	guests := fairshare.GuestID(2 + r.IntN(11))
	for id := range guests {
		c.admit(id)
	}
	for id := range 5 + r.IntN(40) {
		c.at(seconds(60*r.Float64()), func() { c.submit(place.TaskID(id+1), fairshare.GuestID(r.IntN(int(guests)))) })
	}
	for range r.IntN(3) {
		id := fairshare.GuestID(r.IntN(int(guests)))
		c.at(seconds(100*r.Float64()), func() { c.die(id) })
	}
	if len(c.specs) > 1 {
		for range r.IntN(3) {
			gpu := r.IntN(len(c.specs))
			c.at(seconds(100*r.Float64()), func() { c.lose(gpu) })
		}
	}
	for len(c.queue) > 0 {
		c.now = c.queue[0].at
		for len(c.queue) > 0 && c.queue[0].at == c.now {
			heap.Pop(&c.queue).(timer).do()
		}
		c.settle()
	}
	if len(c.tasks) > 0 || c.now > 24*time.Hour {
		c.found.stuck++
	}
	c.found.passed = q.Passed()
	return c.found
}

func (c *chaos) at(after time.Duration, do func()) {
	c.seq++
	heap.Push(&c.queue, timer{c.now + after, c.seq, do})
}

// admit admits a guest with a random limit, which some GPU holds.
func (c *chaos) admit(id fairshare.GuestID) {
	most := uint64(0)
	for _, s := range c.specs {
		most = max(most, s.Memory)
	}
	_ = c.q.Admit(c.now, id, place.Guest{ // refused while that GPU is lost
		Weight: float64(int(1) << c.r.IntN(4)), Memory: most/4 + c.r.Uint64N(most*3/4), Urgent: c.r.IntN(6) == 0,
	})
}

func (c *chaos) submit(id place.TaskID, of fairshare.GuestID) {
	m := &member{
		id: id, guest: of, left: seconds(1 + 40*c.r.Float64()), size: gib/4 + c.r.Uint64N(20*gib), grow: c.r.IntN(4),
		on: make([]uint64, len(c.specs)), stop: true,
	}
	err := c.q.Submit(c.now, id, of, place.Request{Memory: m.size, Blocks: c.r.Uint64N(5000), Threads: uint32(32 << c.r.IntN(6))})
	if err != nil {
		return // over its limit, or over every GPU
	}
	c.tasks[id] = m
	c.found.tasks++
}

// compute has a task go on until it ends, grows, or idles for a while.
func (c *chaos) compute(m *member) {
	m.stop = false
	m.turn++
	turn, d := m.turn, m.left
	if m.grow > 0 {
		d = time.Duration(float64(d) * c.r.Float64())
	}
	if m.idle = c.r.IntN(5) == 0; m.idle {
		must(c.q.SetQuiet(c.now, m.id, true))
		d += seconds(30 * c.r.Float64())
	}
	c.at(d, func() {
		if c.tasks[m.id] != m || m.turn != turn || m.stop {
			return
		}
		m.left = max(m.left-d, 0)
		if m.idle {
			m.idle = false
			must(c.q.SetQuiet(c.now, m.id, false))
			if v, known := c.q.Task(m.id); !known || v.State != place.Placed {
				m.stop = true // its memory is on the host, or on its way there
				return
			}
		}
		if m.grow == 0 {
			must(c.q.Free(c.now, m.id))
			c.gone(m.id)
			return
		}
		m.grow--
		size := m.size + c.r.Uint64N(10*gib)
		granted, err := c.q.Grow(c.now, m.id, size)
		switch {
		case err != nil: // over a limit: the program is told
			c.compute(m)
		case granted:
			c.found.grown++
			m.size = size
			v, known := c.q.Task(m.id)
			if !known {
				panic(fmt.Sprintf("a task of the mix is not the queue's: %d", m.id))
			}
			c.hold(m, v.GPU, size)
			c.compute(m)
		default:
			c.found.grown++
			m.size, m.stop = size, true
		}
	})
}

// hold notes what a task has on a GPU.
func (c *chaos) hold(m *member, gpu int, memory uint64) {
	c.memory[gpu] += memory - m.on[gpu]
	m.on[gpu] = memory
	if c.memory[gpu] > c.specs[gpu].Memory {
		c.found.oom++
	}
}

// gone notes that a task is no more.
func (c *chaos) gone(id place.TaskID) {
	m := c.tasks[id]
	for gpu := range m.on {
		c.hold(m, gpu, 0)
	}
	delete(c.tasks, id)
}

func (c *chaos) die(id fairshare.GuestID) {
	c.found.deaths++
	for _, t := range c.q.Remove(c.now, id) {
		c.gone(t)
	}
	c.admit(id)
}

func (c *chaos) lose(gpu int) {
	c.found.lost++
	for _, t := range c.q.Lose(c.now, gpu) {
		c.gone(t)
	}
	// A task that was on its way there stays where it was.
	for _, v := range c.q.Tasks() {
		c.hold(c.tasks[v.ID], gpu, 0)
	}
	c.at(seconds(1+60*c.r.Float64()), func() { c.q.Return(gpu) })
}

// settle carries out what the queue says.
func (c *chaos) settle() {
	for _, a := range c.q.Begin(c.now, nil) {
		m := c.tasks[a.Task]
		switch a.Kind {
		case place.Begin, place.Grow:
			if a.Memory != m.size {
				c.found.oom++
			}
			c.hold(m, a.GPU, a.Memory)
			c.compute(m)
		case place.Move:
			c.found.moved++
			from := slices.IndexFunc(m.on, func(n uint64) bool { return n > 0 })
			c.hold(m, a.GPU, a.Memory)
			c.at(seconds(c.r.Float64()), func() {
				if c.tasks[a.Task] == m && c.q.Moved(c.now, a.Task) == nil {
					c.hold(m, from, 0)
					c.compute(m)
				}
			})
		case place.Leave:
			c.found.left++
			m.stop = m.stop || !m.idle
			c.at(seconds(2*c.r.Float64()), func() {
				if c.tasks[a.Task] == m && c.q.Left(c.now, a.Task) == nil {
					c.hold(m, a.GPU, 0)
				}
			})
		case place.Refuse:
			if a.GPU < 0 {
				c.gone(a.Task)
				continue
			}
			m.size = a.Memory
			c.compute(m)
		}
	}
	if at, ok := c.q.Next(c.now); ok && at > c.now && at != c.woken {
		c.woken = at
		c.at(at-c.now, func() {})
	}
}
