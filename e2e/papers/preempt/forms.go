package main

import (
	"math"
	"time"

	"vgpud/gpu/soft/machine/blocks"
	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// added is what a form's code issues beside the original's, in warp instructions'
// time of an SM, for a block, a unit (or fetch) and a task.
type added struct{ block, unit, task float64 }

// additions are what the forms add to a kernel.
type additions map[abi.PreemptForm]added

// form is a launch's choice as the model has it.
func (a additions) form(p abi.Preempt) blocks.Form {
	f := blocks.Form{Group: int(p.Group), Every: int(p.Every), Word: blocks.OwnLine}
	switch p.Form {
	case 0:
		return blocks.Form{}
	case abi.PreemptPersistent:
		f.Kind = blocks.Persistent
	default:
		f.Kind = blocks.EarlyExit
	}
	n := a[p.Form]
	f.PerBlock, f.PerUnit, f.PerTask = n.block/issuePerNano, n.unit/issuePerNano, n.task/issuePerNano
	return f
}

// tuned is what the tuner that agents use makes of a kernel off line, when each launch
// takes what the model says.
type tuned struct {
	choice abi.Preempt
	form   blocks.Form
	length float64 // ns, with the host's part
}

// hostTime is the host's time for each launch in a form that may leave: it has to find the launch
// done before the channel continues, where an original is followed by the next launch at once.
// guestagent/driver assumes the same.
const hostTime = 50e3 // ns

// withHost returns how long a launch of a form takes that runs for so many ns.
func withHost(f blocks.Form, length float64) float64 {
	if f.Kind == blocks.Original {
		return length
	}
	return length + hostTime
}

// choose launches the kernel until the tuner has found its choice: within its own
// bound of overhead, 2 %, or else within 5 %. Latency is what is wanted.
func choose(k blocks.Kernel, threads uint32, a additions, latency time.Duration) tuned {
	t := chooseWithin(k, threads, a, latency, 0)
	if t.choice.Form == 0 {
		t = chooseWithin(k, threads, a, latency, 0.05)
	}
	return t
}

func chooseWithin(k blocks.Kernel, threads uint32, a additions, latency time.Duration, overhead float64) tuned {
	var forms abi.PreemptForm
	for f := range a {
		forms |= f
	}
	t := tune.New(tune.Parameters{Latency: latency, Overhead: overhead}, forms)
	lengths := map[abi.Preempt]float64{}
	const most = 1000 // launches; it is settled after some tens
	r, err := t.Offline(tune.Shape{Tasks: k.Tasks, Threads: threads}, blocks.H100.Slots(k), most, func(c abi.Preempt) (time.Duration, error) {
		if _, known := lengths[c]; !known {
			lengths[c] = withHost(a.form(c), blocks.Duration(blocks.H100, k, a.form(c)))
		}
		return time.Duration(lengths[c]), nil
	})
	if err != nil {
		panic("preemptbench: " + err.Error()) // the model's runs don't fail
	}
	return tuned{choice: r.Choice, form: a.form(r.Choice), length: lengths[r.Choice]}
}

// The papers' own forms. Their code issues as much as our persistent form's.

// basic is EffiSha's first form (§6.2): every thread reads the word in host memory
// for each task.
func (a additions) basic() blocks.Form { return a.papers(1, 1, blocks.HostMemoryAll) }

// proxied is EffiSha's second (§6.3): a block copies the word to GPU memory, and
// every thread reads it for each task.
func (a additions) proxied() blocks.Form { return a.papers(1, 1, blocks.Proxy) }

// adaptive is EffiSha's third: it looks in every k-th iteration, ten times in a
// slice.
func (a additions) adaptive(k blocks.Kernel, slice time.Duration) blocks.Form {
	f := a.proxied()
	task := blocks.Duration(blocks.H100, k, f) * float64(blocks.H100.Slots(k)) / float64(k.Tasks)
	f.Every = int(adaptiveEvery(slice, time.Duration(task), 10))
	return f
}

// amortized is FLEP's form (§4.1, figure 4b): one thread reads the word in host
// memory once in L tasks, with the least L by which the kernel is less than 4 %
// longer; the least bad of those tried where there is none.
func (a additions) amortized(k blocks.Kernel) (f blocks.Form, length float64) {
	original := blocks.Duration(blocks.H100, k, blocks.Form{})
	length = math.Inf(1)
	_, err := amortize(original, 0.04, 1024, func(every uint32) (float64, error) {
		g := a.papers(1, int(every), blocks.HostMemory)
		d := blocks.Duration(blocks.H100, k, g)
		if d < length {
			f, length = g, d
		}
		return d, nil
	})
	if err != nil {
		panic("preemptbench: " + err.Error()) // the model's runs don't fail
	}
	return f, length
}

// ours is the papers' loop with our word: GPU memory that the mediator writes, one
// reader, a line of its own.
func (a additions) ours() blocks.Form { return a.papers(1, 1, blocks.OwnLine) }

func (a additions) papers(group, every int, w blocks.Word) blocks.Form {
	f := a.form(abi.Preempt{Form: abi.PreemptPersistent, Group: uint32(group), Every: uint32(every)})
	f.Word = w
	return f
}

// slicing is how long the kernel lasts in slices that are done, in the mean over
// when somebody asks, as soon as the given latency says: launched one after the
// other, so that each begins when the one before has ended (PKM, FLEP §6.5).
func slicing(k blocks.Kernel, latency float64) (length float64, tasks uint64) {
	slice := lasting(k, max(2*(latency-blocks.H100.Gone), blocks.H100.Launch+1))
	slice.Tasks = min(slice.Tasks, k.Tasks)
	whole := k.Tasks / slice.Tasks
	length = float64(whole) * blocks.Duration(blocks.H100, slice, blocks.Form{})
	if rest := k.Tasks % slice.Tasks; rest > 0 {
		last := k
		last.Tasks = rest
		length += blocks.Duration(blocks.H100, last, blocks.Form{})
	}
	return length, slice.Tasks
}
