// Package parallel computes many results at a time, in an order that does not depend on how many
// processors there are.
package parallel

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Map computes n results, a processor each at a time, and returns them in order, or the first
// error.
func Map[T any](n int, f func(i int) (T, error)) ([]T, error) {
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
