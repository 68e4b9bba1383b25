// Package system tests vgpud as a whole: a soft GPU, the daemon and guests' virtual GPUs as
// processes, with guests that attach over vfio-user, some of which are hostile or die.
//
// Each test says what happens to one part and what the others then notice. No test asserts how long
// something takes; package bench measures.
//
// A test that only waits must not fail on a slow machine. To check that, run tests beside processes
// that are always busy:
//
//	go test ./e2e/system -run 'Hostile|OffTheGPU|Adopt' -count 20 -busy 20 -timeout 0
//
// A wait that fails shows the state of all processes.
package system
