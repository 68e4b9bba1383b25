package main

import (
	"math"
	"time"

	"vgpud/gpu/soft/machine/blocks"
	"vgpud/guestagent/preempt/tune"
	"vgpud/mediator/vgpu/abi"
)

// added is what a form's code issues in addition to the original's, as issue time of an SM's warp
// instructions, for a block, a unit (or fetch) and a task.
type added struct{ block, unit, task float64 }

// additions holds the added cost of each form of a kernel.
type additions map[abi.PreemptForm]added

// form converts a launch's form to the model's.
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

// tuned is the choice that the agents' tuner makes for a kernel off line, if each launch takes as
// long as the model says.
type tuned struct {
	choice abi.Preempt
	form   blocks.Form
	length float64 // ns, including the host's time
}

// hostTime is the host's time for each launch in an evictable form. The host must observe the end
// of such a launch before the channel continues, whereas the next launch follows an original at
// once. guestagent/driver assumes the same.
const hostTime = 50e3 // ns

// withHost adds the host's time to a launch of form f that runs for length ns.
func withHost(f blocks.Form, length float64) float64 {
	if f.Kind == blocks.Original {
		return length
	}
	return length + hostTime
}

// choose launches the kernel until the tuner has settled on a form: one within its own overhead
// bound of 2 %, or else within 5 %. latency is the eviction latency wanted.
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
	const most = 1000 // launches; the tuner settles after a few tens
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

// basic is EffiSha's first form (§6.2): every thread reads the flag in host memory for each task.
func (a additions) basic() blocks.Form { return a.papers(1, 1, blocks.HostMemoryAll) }

// proxied is EffiSha's second form (§6.3): a block copies the flag to GPU memory, and every thread
// reads the copy for each task.
func (a additions) proxied() blocks.Form { return a.papers(1, 1, blocks.Proxy) }

// adaptive is EffiSha's third form: a block checks the flag in every k-th iteration, ten times in a
// slice.
func (a additions) adaptive(k blocks.Kernel, slice time.Duration) blocks.Form {
	f := a.proxied()
	task := blocks.Duration(blocks.H100, k, f) * float64(blocks.H100.Slots(k)) / float64(k.Tasks)
	f.Every = int(adaptiveEvery(slice, time.Duration(task), 10))
	return f
}

// amortized is FLEP's form (§4.1, figure 4b): one thread reads the flag in host memory once in L
// tasks. L is the smallest value with which the kernel runs less than 4 % longer; if there is none,
// it is the best of those tried.
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

// ours is the papers' loop with this project's suspend word: it is in GPU memory, on a cache line
// of its own, written by the mediator and read by one thread of a block.
func (a additions) ours() blocks.Form { return a.papers(1, 1, blocks.OwnLine) }

func (a additions) papers(group, every int, w blocks.Word) blocks.Form {
	f := a.form(abi.Preempt{Form: abi.PreemptPersistent, Group: uint32(group), Every: uint32(every)})
	f.Word = w
	return f
}

// slicing returns how long the kernel runs in slices, each launched when the one before it has
// ended (PKM, FLEP §6.5). The slices are so short that a request which arrives at a random moment
// waits for latency ns on average.
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
