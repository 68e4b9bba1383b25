// Package ipc is what the processes of one host share: vgpud serve, the daemon that decides; vgpud
// vm, one for each guest; and vgpud exec, one for each guest context. It carries no data between
// guest and host.
//
// There are two channels. State that must be fast to reach and must survive the daemon is in words on
// the guest's [ControlPage], a shared page that all of the guest's processes and the daemon map: the
// suspend word, the daemon's heartbeat, and for each context its channel group, what it has fetched
// and finished, and a futex to wake it by. News that carries descriptors or happens once is a message
// on a [Conn].
//
// A guest never sees the page, but its processes can write anything to it. So a reader bounds each
// word.
//
// # Flow
//
// Words are written by atomic stores. Words that different processes write lie on different cache
// lines:
//
//	heartbeat, suspend word, bill, terms, mode   serve
//	which contexts are disabled or sliced        serve; vm, once exec is gone
//	doorbells, attached                          vm
//	changes                                      vm and exec
//	a context's state, counters, backlog         exec; vm, once exec is gone
//	a context's futex                            woken by any process, exec sleeps on it
//	serve's futex                                woken by exec, serve sleeps on it
//	a launch slot's turn                         see below
//	a launch slot's request to leave             serve, before it asks; zeroed by exec
//	all else of a launch slot                    exec
//	whether work logs are wanted, what is read   serve
//	a context's work log                         exec
//
// In a launch slot serve and exec agree on one launch. (EffiSha §6.1 calls it a kernel stub;
// package slotstate has its states.) Under policies about kernels every launch has a slot and waits
// in it for its turn. Under other policies only preemptible launches have slots; they run at once
// and can be told to leave. The turn of a slot is one word with the launch's number, its context
// and its state, and is changed only by compare and swap. So a word that was meant for a launch
// that is gone changes nothing. serve moves a launch from Ready to ToRun, from ToRun or Running to
// ToEvict, and back; vm ends the launches of a dead executor; exec makes the other transitions. The
// other words of a slot are written before the transition that they belong to.
//
// Where the GPU records which channel group has its turn but not whether it computes, executors
// keep a log of when their contexts had work: see [WorkLog].
//
// Without the daemon nothing stands still: its suspend word ends [SuspensionLimit] after its last
// heartbeat ([HungLimit] if its process lives), and executors give launches their turns themselves
// after [SilenceLimit] ([LateLimit] if its process lives).
//
// # Locks
//
// The page has none. A [Conn] has one, so that messages of several goroutines keep their order.
package ipc
