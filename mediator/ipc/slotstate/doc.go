// Package slotstate has the states of a launch slot, in which an executor and the daemon agree on
// one launch, and the transitions between them. EffiSha (§6.1) calls the slot a kernel stub. The
// package is pure: it has no memory, clock or goroutine. Package ipc has the slots, and says which
// process writes which word.
//
// The paper speaks of seven states and names six: PREP, READY, TORUN, RUNNING, TOEVICT and DONE.
// [None] is a slot that was never used. Figure 6b of the paper has the transitions of a kernel that
// is evicted and relaunched. The package adds those that the paper's text implies or does not
// treat:
//   - a kernel that is told to leave may have nothing left to do (§6.2: "when a GPU thread
//     finds no more block-task left, it changes the kState field of the stub to DONE");
//   - a kernel may leave without having been asked;
//   - a launch that does not use its turn may lose it, and may be told to leave before it has
//     started;
//   - a kernel that was asked to leave some SMs only (FLEP, figure 4c) may be told that it may
//     stay;
//   - a launch can end in any state, because its context does.
package slotstate
