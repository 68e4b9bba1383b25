package main

import (
	"fmt"
	"math"

	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/blocks"
)

// measured is a form of one kernel as measured on an H100 (docs/results/preemption-on-h100.md): the
// overhead in per cent and the eviction latency in µs. A value that was not measured is NaN.
type measured struct {
	form     blocks.Form
	name     string
	overhead float64
	latency  float64
	// set means that this line's overhead was used to fit a cost of the model, so that it proves
	// nothing. Of the latencies, two were used for one cost each: those of vector addition's early
	// exit and of the stencil's first persistent form.
	set bool
}

// notedKernel is a kernel of those notes.
type notedKernel struct {
	name     string
	model    blocks.Kernel
	original float64 // µs
	// evictedAt is the range of the fraction of the kernel that was done at its eviction. For
	// vector addition the notes say that 900,000 of 1,048,576 blocks remained; for the others they
	// say nothing.
	evictedAt [2]float64
	lines     []measured
}

func persistent(chunk, every int, w blocks.Word) blocks.Form {
	return blocks.Form{Kind: blocks.Persistent, Group: chunk, Every: every, Word: w}
}

func early(group int, w blocks.Word) blocks.Form {
	return blocks.Form{Kind: blocks.EarlyExit, Group: group, Word: w}
}

// notes returns the kernels that the model must predict correctly: two bound by memory and one by
// arithmetic. The time of their tasks is fitted to the original's length, and for the stencil to
// two more lines. All other costs are the GPU's, the same for all three.
func notes() []notedKernel {
	nan := math.NaN()
	times := func(n float64) float64 { return 100 * (n - 1) }
	memory := []blocks.Form{
		persistent(1, 1, blocks.HostMemory), persistent(1, 64, blocks.HostMemory), persistent(1, 1, blocks.BesideCounter),
		persistent(1, 1, blocks.OwnLine), persistent(4, 1, blocks.OwnLine), persistent(16, 1, blocks.OwnLine),
		early(1, blocks.AllThreads), early(1, blocks.OwnLine), early(8, blocks.OwnLine), early(32, blocks.OwnLine),
	}
	names := []string{
		"persistent, word in host memory, each task", "persistent, word in host memory, each 64th", "persistent, word beside the counter",
		"persistent, word on its own line", "persistent, chunks of 4", "persistent, chunks of 16",
		"early exit, all threads read", "early exit", "early exit, by 8", "early exit, by 32",
	}
	lines := func(overhead, latency []float64, set ...int) (all []measured) {
		for i, f := range memory {
			m := measured{form: f, name: names[i], overhead: overhead[i], latency: latency[i]}
			for _, s := range set {
				m.set = m.set || s == i
			}
			all = append(all, m)
		}
		return all
	}
	return []notedKernel{
		{
			// 8 warps of some 14 instructions; 2 loads and a store of 1 KiB each.
			name: "vector add", original: 1160, evictedAt: [2]float64{0.08, 0.20},
			model: blocks.Kernel{Tasks: 1 << 20, PerSM: 8, Warps: 8, Issue: 18, Latency: 300, Bytes: 3072},
			lines: lines(
				[]float64{times(880), times(14), 162, 28, 2.0, -1.8, 147, 7.8, -2.2, -2.8},
				[]float64{967, nan, nan, 8.4, 11.1, 21.3, 2067, 481, 64, 34}, 0, 2, 3, 4, 6, 7, 9),
		},
		{
			// Each point is read from memory once and written once.
			name: "stencil", original: 1069, evictedAt: [2]float64{0.08, 0.20},
			model: blocks.Kernel{Tasks: 1 << 20, PerSM: 8, Warps: 8, Issue: 40, Latency: 340, Bytes: 2048, Setup: 195},
			lines: lines(
				[]float64{times(960), times(15), nan, 39, -5.2, -10.7, 175, 17, -10.6, -10.2},
				[]float64{972, nan, nan, 8.1, 10.6, 18.9, 2117, 527, 52, 33}, 4, 8),
		},
		{
			// With 64 tasks in a unit no block checks twice, yet checking costs 32 %: the 1,056
			// first reads over the bus take 1,033 µs one after the other, and an SM makes no
			// progress until all of its reads have returned.
			name: "n-body", original: 2850, evictedAt: [2]float64{0.05, 0.90},
			model: blocks.Kernel{Tasks: 8192, PerSM: 8, Warps: 8, Issue: 44_500},
			lines: lines(
				[]float64{times(3.2), 32, nan, 0.4, 4.5, 115, 0.03, 0.03, 7.6, 29},
				[]float64{973, nan, nan, 293, 1104, 4794, 322, 333, 1757, nan}, 5, 8, 9),
		},
	}
}

// product returns the notes' fourth kernel, the tiled matrix product, to which nothing was fitted.
// As for all kernels, the time of its tasks comes from the original's length; the costs come from
// the other kernels. A loop around the body costs 22 to 25 % on the H100 whatever the loop does.
// The assembler causes that, and the model does not have it.
func product() notedKernel {
	nan := math.NaN()
	k := notedKernel{
		name: "matrix product", original: 16_816, evictedAt: [2]float64{0.05, 0.90},
		model: blocks.Kernel{Tasks: 1 << 16, PerSM: 8, Warps: 8, Issue: 33_790},
	}
	for i, l := range notes()[0].lines {
		l.overhead = []float64{290, 30, nan, 24, 28, 36, 0.05, 0.01, 3.0, 11}[i]
		l.latency = []float64{1036, nan, nan, 304, 1088, 3924, 238, 233, 1609, nan}[i]
		l.set = false
		k.lines = append(k.lines, l)
	}
	return k
}

// comparison is a line of the notes with the model's prediction.
type comparison struct {
	measured
	overheadModel, latencyModel float64
}

// compare runs the model for each of a kernel's lines, with n evictions each.
func (k *notedKernel) compare(n int) (original float64, all []comparison) {
	original = blocks.Duration(blocks.H100, k.model, blocks.Form{}) / 1000
	for _, m := range k.lines {
		h := comparison{measured: m, latencyModel: math.NaN()}
		h.overheadModel = 100 * (blocks.Duration(blocks.H100, k.model, m.form)/1000/original - 1)
		if !math.IsNaN(m.latency) {
			h.latencyModel = blocks.Quantile(blocks.Evictions(blocks.H100, k.model, m.form, k.evictedAt[0], k.evictedAt[1], n), 0.5) / 1000
		}
		all = append(all, h)
	}
	return original, all
}

// tie is the difference in percentage points below which the order of two forms does not matter.
// Repeated runs on the H100 differ by as much.
const tie = 1.5

// misordered returns the pairs of forms, including the original, that the model orders differently
// from the H100.
func misordered(all []comparison) (pairs []string) {
	all = append([]comparison{{measured: measured{name: "original"}}}, all...)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if math.IsNaN(a.overhead) || math.IsNaN(b.overhead) {
				continue
			}
			d, m := a.overhead-b.overhead, a.overheadModel-b.overheadModel
			if math.Abs(d) > tie && d*m <= 0 {
				pairs = append(pairs, fmt.Sprintf("%s %+.1f %% and %s %+.1f %% are %+.1f %% and %+.1f %% here",
					a.name, a.overhead, b.name, b.overhead, a.overheadModel, b.overheadModel))
			}
		}
	}
	return pairs
}

// slow returns the forms whose eviction latency is off by more than a factor of two.
func slow(all []comparison) (lines []string) {
	for _, h := range all {
		if math.IsNaN(h.latency) {
			continue
		}
		if r := h.latencyModel / h.latency; r > 2 || r < 0.5 {
			lines = append(lines, fmt.Sprintf("%s: %.1f µs, %.1f here", h.name, h.latency, h.latencyModel))
		}
	}
	return lines
}

// agreement is how well the model agrees with a real GPU.
type agreement struct {
	pairs, misordered int // pairs of one kernel's forms that differ by more than a tie
	latencies, off    int // eviction latencies, and those off by more than a factor of two
}

// agree compares the lines of one kernel with the model.
func agree(all []comparison) agreement {
	a := agreement{misordered: len(misordered(all)), off: len(slow(all))}
	overheads := []float64{0} // the original's
	for _, h := range all {
		if !math.IsNaN(h.overhead) {
			overheads = append(overheads, h.overhead)
		}
		if !math.IsNaN(h.latency) {
			a.latencies++
		}
	}
	for i, d := range overheads {
		for _, e := range overheads[i+1:] {
			if math.Abs(d-e) > tie {
				a.pairs++
			}
		}
	}
	return a
}

// String summarizes the agreement in one line.
func (a agreement) String() string {
	return fmt.Sprintf("of %d pairs of one kernel's forms that are more than %.1f points apart, %d are in the same order; %d of %d latencies are off by more than a factor of two",
		a.pairs, tie, a.pairs-a.misordered, a.off, a.latencies)
}

// notesFigures returns the notes' tables with the model's predictions, those of the fitted kernels
// first, and the agreement of the last one, to which nothing was fitted.
func notesFigures(evictions int) (figures []plot.Figure, unfitted agreement) {
	for _, k := range append(notes(), product()) {
		original, all := k.compare(evictions)
		unfitted = agree(all)
		f := plot.Figure{
			Number: "0, " + k.name, Title: "What forms cost on an H100 and in the model; eviction latency", Log: true,
			Paper:   fmt.Sprintf("preemption-on-h100.md, both tables: original %.0f µs", k.original),
			YLabel:  "length relative to the original",
			Columns: []string{"form", "H100, relative", "model, relative", "H100, µs to leave", "model, µs to leave"},
		}
		f.Ours = fmt.Sprintf("original %.0f µs; %v", original, agree(all))
		for _, h := range all {
			name := h.name
			if h.set {
				name += " *"
			}
			f.Rows = append(f.Rows, plot.Row{Name: name, Values: []float64{
				1 + h.overhead/100, 1 + h.overheadModel/100, h.latency, h.latencyModel,
			}})
		}
		figures = append(figures, f)
	}
	return figures, unfitted
}
