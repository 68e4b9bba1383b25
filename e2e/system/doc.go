// Package system holds tests of vgpud as a whole: a soft GPU, the daemon and
// guests' virtual GPUs as processes, with guests that attach over vfio-user,
// some of which mean harm or die.
//
// Each test tells what one of them does and what the others then notice. None
// asserts how long something takes; numbers are package bench's.
package system
