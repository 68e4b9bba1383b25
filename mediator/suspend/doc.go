// Package suspend controls guests' contexts through the GPU's driver. It takes their channels off
// the hardware, if need be in mid-kernel, and puts them back, and sets their time slices. It does
// not decide when; that is package scheduler's.
//
// A [Controller] belongs to one guest. It is told the desired state ([Controller.SetDesired]) and
// which of the guest's contexts it can control ([Controller.SetControl]). A goroutine of its own
// makes the actual state the desired one: calls of the driver take up to a millisecond, and nothing
// else should wait for them.
//
// The driver counts how often a context was disabled, and keeps the count when the caller ends. So
// at most one disable of the daemon's is outstanding for each context, and that it may be is
// recorded first, in a file ([Intents]) and on the guest's control page. A daemon that starts
// enables what the last one recorded before it does anything else; to enable once too often does no
// harm. Without a daemon the context's own executor enables it (package executor), also if the
// daemon stands still or its calls fail: see [Controller.Invalidate].
//
// A controller has one mutex. It guards what other goroutines set and read, and is not held during
// calls of the driver.
package suspend
