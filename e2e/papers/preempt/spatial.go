package main

import (
	"fmt"
	"math"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/gpu/soft/machine/blocks"
	"vgpud/mediator/vgpu/abi"
)

// third is the number of SMs that a trivial kernel needs, a third of the GPU's: "if the GPU has 15
// SMs […] the trivial input may only create 40 CTAs and only needs 5 SMs" (FLEP §6.1).
const third = 44

// onSMs returns how long k runs in form f on the given number of SMs with the whole GPU's memory
// bandwidth.
func onSMs(k blocks.Kernel, f blocks.Form, sms int) float64 {
	c := blocks.H100
	c.SMs = sms
	return blocks.Duration(c, k, f)
}

// loop returns the form for spatial eviction, a persistent one. An early exit's freed SMs would
// only drain the rest of the grid. It returns the zero form if the kernel has no persistent form.
func (s *subject) loop(k blocks.Kernel) blocks.Form {
	if _, ok := s.added[abi.PreemptPersistent]; !ok {
		return blocks.Form{}
	}
	best, length := blocks.Form{}, math.Inf(1)
	for _, chunk := range []int{1, 4, 16} {
		f := s.added.ours()
		f.Group = chunk
		if d := blocks.Duration(blocks.H100, k, f); d < length {
			best, length = f, d
		}
	}
	return best
}

// sideBySide returns how long A and a trivial B take together if B arrives after a part of A: with
// A evicted from all SMs (temporal), or only from the SMs that B needs (spatial), and launched
// there again when B is done. A's rates, alone and on the other SMs, are the model's. The effect of
// A and B on each other's memory accesses is not modelled.
func sideBySide(a blocks.Kernel, f blocks.Form, b, part float64) (temporal, spatial float64) {
	whole := blocks.Duration(blocks.H100, a, f) - blocks.H100.Launch
	less := onSMs(a, f, blocks.H100.SMs-third) - blocks.H100.Launch
	mean := func(below int) (latency, gain float64) {
		const n = 12
		for i := range n {
			l := blocks.Evict(blocks.H100, a, f, part, below, uint64(i)+1)
			latency += l.Latency / n
			gain += float64(l.After-l.Done) / float64(a.Tasks) / n
		}
		return latency, gain
	}
	launch := blocks.H100.Launch
	before := launch + part*whole

	latency, gain := mean(0)
	temporal = before + latency + launch + b + launch + max(1-part-gain, 0)*whole

	// A continues on all other SMs until B's SMs are free, and on the rest while B runs.
	latency, _ = mean(third)
	left := 1 - part - latency/whole*(1-0.5*third/float64(blocks.H100.SMs))
	left -= (launch + b) / less
	if left < 0 {
		// A ends before B.
		return temporal, before + latency + launch + b
	}
	return temporal, before + latency + launch + b + launch + left*whole
}

// figure15 computes the cost of preemption from all SMs and from only those that are needed. The
// cost is FLEP's (§6.1): how much longer both kernels take together than one after the other.
func (f *flep) figure15() (plot.Figure, error) {
	fig := plot.Figure{
		Number: "FLEP 15", YLabel: "overhead, %", Columns: []string{"low-priority kernel", "temporal overhead", "spatial overhead", "saved, of the urgent kernel"},
		Title: "Preemption overhead, all SMs and the third that is needed, without what the form costs anyway; means over the other benchmarks, per cent",
		Paper: "§6.4: spatial preemption reduces the overhead by 31 % on average, at most 41 % (NN)",
	}
	rows, err := parallel.Map(len(table1), func(i int) (plot.Row, error) {
		a, form := f.largeOriginal[i].kernel, f.subjects[i].loop(f.largeOriginal[i].kernel)
		if form.Kind == blocks.Original {
			return plot.Row{Name: table1[i].name, Values: []float64{math.NaN(), math.NaN(), math.NaN()}}, nil
		}
		loop := blocks.Duration(blocks.H100, a, form)
		var sums [3]float64
		n := float64(len(table1) - 1)
		for j, b := range table1 {
			if j == i {
				continue
			}
			trivial := float64(b.trivial)
			org := loop + trivial
			temporal, spatial := sideBySide(a, form, trivial, 0.3)
			sums[0] += 100 * (temporal - org) / org / n
			sums[1] += 100 * (spatial - org) / org / n
			sums[2] += 100 * (temporal - spatial) / trivial / n
		}
		return plot.Row{Name: table1[i].name, Values: sums[:]}, nil
	})
	fig.Rows = rows
	if err != nil {
		return fig, err
	}
	var sums [3]float64
	n := 0.0
	for _, r := range rows {
		if math.IsNaN(r.Values[0]) {
			continue
		}
		n++
		for c := range sums {
			sums[c] += r.Values[c]
		}
	}
	fig.Ours = fmt.Sprintf("temporal %.2f %% on average, spatial %.2f %% (below 0: both together are done sooner than one after the other); what is saved is %.0f %% of the urgent kernel's length",
		sums[0]/n, sums[1]/n, sums[2]/n)
	return fig, nil
}

// figure16 computes how much a small urgent kernel gains from more SMs than it fits on.
func (f *flep) figure16() (plot.Figure, error) {
	names := []string{"NN", "MD"}
	fig := plot.Figure{
		Number: "FLEP 16", Lines: true, XLabel: "SMs yielded", YLabel: "speedup", Columns: append([]string{"SMs"}, names...),
		Title: "Speed of a high-priority kernel whose blocks two SMs hold, by the SMs yielded to it",
		Paper: "§6.4: improves with more SMs; at most about 2.22 times",
	}
	most := 0.0
	for _, sms := range []int{2, 3, 4, 6, 8, 12, 16} {
		r := plot.Row{Name: fmt.Sprint(sms)}
		for _, name := range names {
			k := f.subjects[index(name)].model
			k.Tasks = uint64(2 * k.PerSM)
			r.Values = append(r.Values, onSMs(k, blocks.Form{}, 2)/onSMs(k, blocks.Form{}, sms))
			most = max(most, r.Values[len(r.Values)-1])
		}
		fig.Rows = append(fig.Rows, r)
	}
	fig.Ours = fmt.Sprintf("at most %.2f times", most)
	return fig, nil
}

// figure17 compares the overhead of FLEP's form, ours and slices on single kernels.
func (f *flep) figure17() (plot.Figure, error) {
	fig := plot.Figure{
		Number: "FLEP 17", YLabel: "overhead, %",
		Title:   "Overhead of single kernels that are not evicted, per cent",
		Paper:   "§6.5: FLEP 2.5 % on average, slicing 8 % at the same granularity; slicing much worse for CFD, MD, SPMV and MM, better for VA",
		Columns: []string{"kernel", "FLEP's form, tuned L", "slicing, its latency", "chosen form", "slicing, the same latency"},
	}
	rows, err := parallel.Map(len(table1), func(i int) (plot.Row, error) {
		p, s := f.large[i], f.subjects[i]
		original := float64(p.alone)
		amortized, length := s.added.amortized(p.kernel)
		theirs, _ := slicing(p.kernel, p50(p.kernel, amortized))
		ours, _ := slicing(p.kernel, p50(p.kernel, p.form))
		return plot.Row{Name: table1[i].name, Values: []float64{
			percent(withHost(amortized, length) / original), percent(theirs / original), percent(withHost(p.form, float64(p.length)) / original), percent(ours / original),
		}}, nil
	})
	fig.Rows = rows
	if err != nil {
		return fig, err
	}
	fig.Ours = "on average"
	for c, name := range fig.Columns[1:] {
		var sum float64
		for _, r := range rows {
			sum += r.Values[c] / float64(len(rows))
		}
		fig.Ours += fmt.Sprintf(" %s %+.1f %%;", name, sum)
	}
	return fig, nil
}
