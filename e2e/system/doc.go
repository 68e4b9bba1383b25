// Package system holds tests of vgpud as a whole: a soft GPU, the daemon and
// guests' virtual GPUs as processes, with guests that attach over vfio-user,
// some of which mean harm or die.
//
// Each test tells what one of them does and what the others then notice. None
// asserts how long something takes; numbers are package bench's.
//
// What only waits must not fail on a machine that is slow. To see that it doesn't, run
// tests beside processes that are busy all the time, for as long as that takes:
//
//	go test ./e2e/system -run 'Hostile|OffTheGPU|Adopt' -count 20 -busy 20 -timeout 0
//
// A wait that was in vain fails with what all processes were doing.
package system
