// Package ipc is what the processes of one host say to each other: serve, the
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
//
// Who writes what on it, all of it by atomic stores, and what is written by
// different processes on lines of its own:
//
//	heartbeat, verdict, bill, terms, mode   serve
//	which contexts are disabled             serve; vm, once exec is gone
//	doorbells, attached                     vm
//	changes                                 vm and exec
//	a context's state, counters, backlog    exec; vm, once exec is gone
//	a context's bell                        rung by anybody, exec sleeps on it
//	serve's bell                            rung by exec, serve sleeps on it
//	a stub's turn                           see below
//	a stub's asked, deadline, below SM      serve, before it asks; zeroed by exec
//	all else of a stub                      exec
//	whether work is wanted, what is taken   serve
//	a context's work                        exec
//
// A stub is what serve and exec say to each other about one launch (EffiSha §6.1;
// package stub has the states): under policies that decide about kernels, every
// launch has one and waits in it for its turn; under others, only preemptible
// ones have, which run at once and can be told to leave. The turn of a stub is one
// word, of the launch's number, its context and its state, that is changed only by
// compare and swap; so a word meant for a launch that is gone changes nothing.
// serve brings a launch from Ready to ToRun and from ToRun or Running to ToEvict, and from
// there to Running, vm gives
// back what a dead executor held, and exec does the rest. What else a stub says is
// written before the transition that it belongs to.
//
// Where the GPU records whose turn it is and not what for, serve has executors keep
// account of when their contexts had work: see [Work].
//
// Without the daemon nothing stands still: its verdict ends [SuspensionLimit]
// after its last heartbeat, and its executors give launches their turns themselves
// after [SilenceLimit].
package ipc
