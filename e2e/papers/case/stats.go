package main

import "math"

// statOf returns the mean and the standard deviation of values.
func statOf(vs []float64) (s stat) {
	for _, v := range vs {
		s.mean += v / float64(len(vs))
	}
	if len(vs) < 2 {
		return s
	}
	sum := 0.0
	for _, v := range vs {
		sum += (v - s.mean) * (v - s.mean)
	}
	s.spread = math.Sqrt(sum / float64(len(vs)-1))
	return s
}

// pick returns what a value is of a cell with host work as it is, at half and at double.
func pick(value func(variant) float64) (nominal, half, double func(*cell) float64) {
	return func(c *cell) float64 { return value(c.nominal()) },
		func(c *cell) float64 { return value(c.half) },
		func(c *cell) float64 { return value(c.double) }
}
