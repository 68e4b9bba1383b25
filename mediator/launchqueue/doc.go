// Package launchqueue keeps track of the kernel launches that wait for one GPU or run on it, for
// policies that decide about single launches. It has no clock, goroutine or socket and decides
// nothing: package scheduler calls it with the time, under its own lock, and carries verdicts out
// through it.
//
// The flow of a launch: an executor claims a launch slot (ipc.LaunchSlot; EffiSha §6.1 calls it a
// stub) and fills it in. [Queue.Read] compares all slots with what they were at the read before and
// makes events of the differences. [Queue.Next] returns the events one at a time, and
// [Queue.Launches] shows the launches as the policy may know them at that event. A verdict is
// written into the slot by [Launch.Run] or [Launch.Evict].
//
// A guest's executors write the slots, and a guest may have taken one of them over. So the queue
// remembers what the daemon itself wrote, limits every value it reads to what is possible, and
// stops waiting for launches that don't go on (stall detection, in stalls.go).
//
// A [Predictor] estimates how long launches run and what evicting them costs, and [Evictions] sums
// up how long evictions took.
//
// A launch has three forms on this side: the slot that is shared with its executor (ipc.Launch),
// the tracked [Launch], and the [fairshare.Launch] inside of it that a policy is shown.
package launchqueue
