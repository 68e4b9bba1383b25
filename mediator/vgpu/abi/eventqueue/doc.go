// Package eventqueue is both ends of an event kernel's queue in the event area (BAR4), as EDGE's
// figure 8c and §III.B and C describe them. [Launcher] is the end of whoever launches events, a
// network card or a program in a guest: it keeps its own head and tail, fills entries, marks them
// busy, rings by storing a word, and takes what is done. [Poller] is the host's end: it has one head,
// starts the events of rings in order, and marks entries done in any order.
//
// The memory is shared with a guest that may write anything at any time. The poller copies what it
// uses, keeps its head and the entries under way to itself, and bounds what a ring can make it do. The
// launcher trusts the host for the host's words, checks the row, and is harmed by nobody but its own
// guest.
//
// The package is pure: it has no goroutine, clock, lock or descriptor. Each end belongs to one
// goroutine at a time.
package eventqueue
