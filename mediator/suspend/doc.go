// Package suspend is what the daemon does to guests' contexts through the GPU's
// driver: it takes their channels off the hardware, in mid-kernel, and puts them
// back, and sets how long they run before the next one's turn.
//
// A [Grip] is on one guest. It is told what is wanted ([Grip.Set]) and which of the
// guest's contexts can be controlled ([Grip.Take]), and a goroutine of its own makes
// the one so by the other: calls of the driver take up to a millisecond, in which
// nothing else should wait.
//
// The driver counts how often a context was disabled, and keeps the count when its
// caller ends. So at most one disable of the daemon's is outstanding for each
// context, and that it may be is written down first, in a file ([Intents]) and on the
// guest's page. A daemon that starts anew enables what the last one had written down
// before it does anything else; to enable once too often does no harm. Without a
// daemon the context's own executor does it (package executor), and so it does where
// the daemon stands still or its calls fail: see [Grip.Doubt].
package suspend
