// Package sim simulates guests on a [machine.Machine]: ten seconds of sixteen guests take
// milliseconds, and runs are deterministic. It drives accounting and fairshare in tests and in the
// papers' figures; the machine itself knows nothing of guests.
//
// A [Sim] is an accounting.Simulation with the same registers as a live soft GPU. Its guests are
// closed loops. Each keeps a number of commands in its ring, draws the next one's length from a
// distribution, and thinks between the end of a command and the submission of the next. Suspending
// a guest stops fetching from its ring; what was fetched runs on (LoGA §4.3). A Sim has no
// goroutine and no lock.
package sim
