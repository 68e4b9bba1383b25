package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vgpud/e2e/papers/parallel"
	"vgpud/e2e/papers/plot"
	"vgpud/fairshare/duration"
	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/machine/blocks"
)

// figure7 computes the error of predicted durations: "for each kernel, we use 100 randomly
// generated data inputs" (FLEP §4.2). Here the inputs are grids between the small and the large
// input's, with a task's cost drawn from cases of the given number of seeds. The predictions are
// tested on small and large inputs of seeds that the model has not seen.
func (f *flep) figure7(training, seeds int) (plot.Figure, error) {
	fig := plot.Figure{
		Number: "FLEP 7", YLabel: "error, %", Columns: []string{"kernel", "mean error", "on small inputs", "on large inputs"},
		Title: fmt.Sprintf("Error of foreseen durations after %d random inputs, per cent", training),
		Paper: "§6.2: 6.9 % on average, 2.7 to 12.2 %; least for NN, MM and VA, whose access is regular",
	}
	rows, err := parallel.Map(len(table1), func(i int) (plot.Row, error) {
		row := plot.Row{Name: table1[i].name}
		s := f.subjects[i]
		var models []blocks.Kernel
		for seed := range uint64(seeds + seeds/2) {
			other, err := study(s.k, corpus.Trivial, seed+1)
			if err != nil {
				return row, fmt.Errorf("seed %d: %w", seed+1, err)
			}
			models = append(models, other.model)
		}
		r := rand.New(rand.NewPCG(7, uint64(i)))
		m := duration.New(duration.Options{})
		run := func(k blocks.Kernel, tasks float64) (duration.Features, time.Duration) {
			k.Tasks = uint64(tasks)
			took := time.Duration(blocks.Duration(blocks.H100, k, blocks.Form{}))
			return duration.Features{
				Blocks: k.Tasks, Threads: s.threads, Shared: s.shared, Input: uint64(tasks * s.model.Bytes),
			}, took
		}
		small, large := float64(f.smallOriginal[i].kernel.Tasks), float64(f.largeOriginal[i].kernel.Tasks)
		for range training {
			features, took := run(models[r.IntN(seeds)], small*math.Pow(large/small, r.Float64()))
			m.Observe(1, features, took)
		}
		var errors [2]float64
		unseen := models[seeds:]
		for _, k := range unseen {
			for j, tasks := range []float64{small, large} {
				features, took := run(k, tasks)
				errors[j] += 100 * math.Abs(m.Predict(1, features).Seconds()/took.Seconds()-1) / float64(len(unseen))
			}
		}
		row.Values = []float64{(errors[0] + errors[1]) / 2, errors[0], errors[1]}
		return row, nil
	})
	fig.Rows = rows
	if err != nil {
		return fig, err
	}
	var sum float64
	for _, r := range rows {
		sum += r.Values[0] / float64(len(rows))
	}
	v, of := worst(rows, 0)
	fig.Ours = fmt.Sprintf("%.1f %% on average, at most %.1f %% (%s); noise of a real machine's runs is not in it", sum, v, of)
	return fig, nil
}
