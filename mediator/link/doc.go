// Package link is what the processes of one host say to each other: serve, the
// daemon that decides; vm, one a guest; and exec, one a guest context.
//
// There are two ways to say it. What must be fast and must survive the daemon
// is a word in the guest's [Page], one shared page that all of the guest's
// processes and the daemon map: the verdict, the daemon's heartbeat, and for
// each context its channel group, what it has fetched and finished, and a bell
// to wake it by. What carries descriptors or happens once is a message on a
// [Conn].
//
// The page is trusted as far as its processes are: a guest never sees it.
package link
