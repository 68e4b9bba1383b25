package main

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

// parallel computes n results, a processor each at a time. Results are in order,
// so that they don't depend on how many processors there are.
func parallel[T any](n int, f func(i int) (T, error)) ([]T, error) {
	results := make([]T, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() (err error) {
			results[i], err = f(i)
			return err
		})
	}
	return results, group.Wait()
}
