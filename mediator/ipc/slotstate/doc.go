// Package slotstate says which states a launch goes through between the executor that
// holds it and the daemon that decides whose turn it is: EffiSha's kernel stubs
// (§6.1), as a state machine without memory, clock or goroutine. Where the stubs
// lie, and who writes which word, is package link's.
//
// The paper says that there are seven states and names six: PREP, READY, TORUN,
// RUNNING, TOEVICT and DONE. These are they; [None] is a stub that was never
// used. The paper's figure 6b has the transitions along a kernel's way; added
// here are those that its text implies or leaves to luck: a kernel that was told
// to leave and had nothing left to do (§6.2: "when a GPU thread finds no more
// block-task left, it changes the kState field of the stub to DONE"), one that
// leaves unasked, one that does not use its turn and has it taken back, one that is
// told that it may stay, since it was asked to leave some SMs only (FLEP figure 4c)
// and these are free again, and launches that end in any state because their context
// does.
package slotstate
