// Package bench measures vgpud as a whole: the same processes as in operation, with guests that
// attach over vfio-user.
//
//	go test -run '^$' -bench . ./e2e/bench
//
// Compare two runs with benchstat (golang.org/x/perf/cmd/benchstat) and -count 10. The results,
// with numbers to compare them with, are in docs/performance.md. They depend on the load of the
// processors: measure on a quiet machine.
package bench
