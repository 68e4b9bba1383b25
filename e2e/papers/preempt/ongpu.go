package main

import (
	"fmt"
	"math"

	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

// h200 is the H100's model with the H200's memory bandwidth: 4.8 TB/s instead of 3.35 (the vendor's
// figures).
var h200 = func() blocks.Costs {
	c := blocks.H100
	c.Bandwidth *= 4.8 / 3.35
	return c
}()

// onGPU is the cost of a transformed kernel on a real GPU as measured by e2e/papers/preempt/gpu
// (docs/results/preempt-gpu.md): the overhead in per cent and the median latency of some evictions
// in µs.
type onGPU struct {
	kernel   string // of the corpus
	original float64
	tasks    uint64
	// times returns the ratio of a task's work, which is its loop's length, to that in the corpus'
	// case from which the model's kernel is derived.
	times func(s subject) float64
	lines []lineOnGPU
}

type lineOnGPU struct {
	choice            abi.Preempt
	word              blocks.Word
	overhead, latency float64
}

// String names the form, and the word if it is not the usual one.
func (l lineOnGPU) String() string {
	text := fmt.Sprintf("%v %d", l.choice.Form, l.choice.Group)
	if l.choice.Every > 1 {
		text += fmt.Sprintf(", each %dth", l.choice.Every)
	}
	return text + map[blocks.Word]string{
		blocks.AllThreads: ", all threads", blocks.HostMemory: ", host memory", blocks.HostMemoryAll: ", host memory, all threads",
		blocks.Proxy: ", proxy, all threads", blocks.ProxyOne: ", proxy",
	}[l.word]
}

func h200Lines(single, coarse8, coarse32, persistent1, persistent4, persistent16 [2]float64) []lineOnGPU {
	line := func(f abi.PreemptForm, group uint32, v [2]float64) lineOnGPU {
		return lineOnGPU{abi.Preempt{Form: f, Group: group, Every: 1}, blocks.OwnLine, v[0], v[1]}
	}
	return []lineOnGPU{
		line(abi.PreemptSingle, 1, single), line(abi.PreemptCoarse, 8, coarse8), line(abi.PreemptCoarse, 32, coarse32),
		line(abi.PreemptPersistent, 1, persistent1), line(abi.PreemptPersistent, 4, persistent4), line(abi.PreemptPersistent, 16, persistent16),
	}
}

// Ratios of a task's work to that in the corpus' case.
func once(subject) float64        { return 1 }
func ofProduct(s subject) float64 { return 4096 / (16 * math.Sqrt(float64(s.tasks))) }
func ofBodies(s subject) float64  { return 8192 / (128 * float64(s.tasks)) }

// h200Runs are the measurements on an H200. The latency of a kernel that finished before all its
// blocks checked again measures its end, not an eviction.
var h200Runs = []onGPU{
	{"vecadd", 950.8, 1 << 20, once, h200Lines(
		[2]float64{19.10, 530.7}, [2]float64{-6.36, 72.5}, [2]float64{-6.21, 32.9},
		[2]float64{45.10, 8.8}, [2]float64{-3.44, 11.2}, [2]float64{-4.66, 21.0})},
	{"stencil", 1605.3, 1 << 20, once, h200Lines(
		[2]float64{14.88, 477.7}, [2]float64{-5.50, 64.1}, [2]float64{0.10, 53.8},
		[2]float64{32.86, 9.3}, [2]float64{-6.28, 13.3}, [2]float64{-2.07, 29.7})},
	{"matmul", 16865.6, 1 << 16, ofProduct, h200Lines(
		[2]float64{-0.18, 237.4}, [2]float64{2.95, 1711.7}, [2]float64{10.49, 6314.8},
		[2]float64{-1.46, 251.0}, [2]float64{1.38, 857.1}, [2]float64{10.13, 3594.2})},
	{"nbody", 5228.9, 8192, ofBodies, h200Lines(
		[2]float64{0.44, 1204.7}, [2]float64{14.01, math.NaN()}, [2]float64{63.42, math.NaN()},
		[2]float64{-0.88, 1130.5}, [2]float64{6.17, math.NaN()}, [2]float64{321.53, math.NaN()})},
}

// h200Figure compares the model with those measurements. The kernels are the corpus', with the soft
// GPU's cost model and the present transformation. Nothing was fitted to the measurements.
func h200Figure(all map[string]subject) (plot.Figure, agreement) {
	return besideModel(plot.Figure{
		Number:  "0, H200",
		Title:   "Our own forms on a real H200 and in the model, nothing fitted",
		Columns: []string{"kernel, form", "H200, relative", "model, relative", "H200, µs to leave", "model, µs to leave"},
	}, h200, h200Runs, all)
}

// h100Figure does the same with measurements on an H100, and includes the papers' ways to check the
// evict word.
func h100Figure(all map[string]subject) (plot.Figure, agreement) {
	return besideModel(plot.Figure{
		Number:  "0, H100",
		Title:   "Our own forms and the papers' words on a real H100 and in the model, nothing fitted",
		Columns: []string{"kernel, form", "H100, relative", "model, relative", "H100, µs to leave", "model, µs to leave"},
	}, blocks.H100, h100Runs, all)
}

// besideModel fills a figure with measurements of a GPU and the model's predictions.
func besideModel(f plot.Figure, costs blocks.Costs, runs []onGPU, all map[string]subject) (plot.Figure, agreement) {
	f.Log, f.YLabel, f.Paper = true, "relative length, or µs", "measured, docs/results/preempt-gpu.md"
	var sum agreement
	for _, run := range runs {
		s, ok := all[run.kernel]
		if !ok {
			continue
		}
		k := s.model
		k.Tasks = run.tasks
		times := run.times(s)
		k.Issue *= times
		k.Bytes *= times
		if times > 1 {
			k.Latency *= times
		}
		original := blocks.Duration(costs, k, blocks.Form{})
		f.Rows = append(f.Rows, plot.Row{Name: fmt.Sprintf("%s, original, ms", run.kernel), Values: []float64{
			run.original / 1000, original / 1e6, math.NaN(), math.NaN(),
		}})
		var model []float64
		for _, l := range run.lines {
			form := s.added.form(l.choice)
			form.Word = l.word
			length := blocks.Duration(costs, k, form) / original
			latency := math.NaN()
			if !math.IsNaN(l.latency) {
				latency = blocks.Quantile(blocks.Evictions(costs, k, form, 0.05, 0.9, 9), 0.5) / 1000
				sum.latencies++
				if r := latency / l.latency; r > 2 || r < 0.5 {
					sum.off++
				}
			}
			model = append(model, length)
			f.Rows = append(f.Rows, plot.Row{Name: fmt.Sprintf("%s, %v", run.kernel, l), Values: []float64{
				1 + l.overhead/100, length, l.latency, latency,
			}})
		}
		for i := range model {
			for j := range i {
				d, m := run.lines[i].overhead-run.lines[j].overhead, 100*(model[i]-model[j])
				if math.Abs(d) <= tie {
					continue
				}
				if sum.pairs++; d*m <= 0 {
					sum.misordered++
				}
			}
		}
	}
	f.Ours = sum.String()
	return f, sum
}
