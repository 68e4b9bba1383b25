// Package parallel computes many results at a time, in an order that does not depend on how many
// processors there are, and shows how far that is.
package parallel

import (
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Map computes n results, a processor each at a time, and returns them in order, or the first
// error.
func Map[T any](n int, f func(i int) (T, error)) ([]T, error) {
	results := make([]T, n)
	ended := shown.Load().part(n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() (err error) {
			if results[i], err = f(i); err == nil {
				err = ended()
			}
			return err
		})
	}
	return results, group.Wait()
}
