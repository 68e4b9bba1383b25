package main

import (
	"gonum.org/v1/gonum/stat"

	"vgpud/e2e/papers/parallel"
)

// repeats is how often each experiment is done, each time with another seed: as often as LoGA's
// (§5.1).
const repeats = 10

// repeated makes n rows. Each value is the mean over so many seeds, with its standard deviation.
// Row i's name is the same for each seed.
func repeated(n, seeds int, one func(i int, seed uint64) (row, error)) ([]row, error) {
	all, err := parallel.Map(n*seeds, func(i int) (row, error) { return one(i/seeds, seedOf(i/seeds, i%seeds)) })
	if err != nil {
		return nil, err
	}
	rows := make([]row, n)
	for i := range rows {
		rows[i] = together(all[i*seeds : (i+1)*seeds])
	}
	return rows, nil
}

// seedOf returns the seed of an experiment's repetition. Each has another one.
func seedOf(experiment, repetition int) uint64 { return uint64(experiment*repeats + repetition) }

// together returns the mean of rows, and their standard deviation.
func together(rows []row) row {
	r := row{Name: rows[0].Name}
	for column := range rows[0].Values {
		var values []float64
		for _, other := range rows {
			values = append(values, other.Values[column])
		}
		mean, deviation := statistics(values)
		r.Values, r.Spread = append(r.Values, mean), append(r.Spread, deviation)
	}
	return r
}

// statistics returns the mean of values and their sample standard deviation, 0 for a single value.
func statistics(values []float64) (mean, deviation float64) {
	if len(values) == 1 {
		return values[0], 0
	}
	return stat.MeanStdDev(values, nil)
}
