// Package bench measures vgpud as a whole: the same processes as in operation,
// with guests that attach over vfio-user.
//
//	go test -run '^$' -bench . ./e2e/bench
//
// The numbers, and what they are to be compared with, are in
// docs/performance.md. They depend on who else wants the processors: measure on
// a quiet machine.
package bench
