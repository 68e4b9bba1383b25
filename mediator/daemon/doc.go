// Package daemon is the host service, `vgpud serve`: it knows the guests and
// the physical GPUs, watches who uses each GPU (package accounting), decides by
// policy who may (package fairshare), and tells the guests' executors through
// their pages (package link).
//
// The data path does not pass through it. A guest's processes outlive it: they go
// on with the verdicts they have, a suspension ends by itself once the daemon
// has been silent for two seconds, and a daemon that starts anew finds the guests
// by their control sockets and their sums on their pages.
//
// [Service] is the whole of it. A [share] is one GPU's part: the rounds of
// watching and deciding, with a pure [tally] between what was seen and what the
// policy is told. Where the policy decides about single launches, the guests' bells
// wake a listener each; a [board] makes events of the launches' stubs, a
// [foresight] says how long they will run and what it costs to evict them, and the
// verdicts are words in the stubs. Where the GPU's driver lets contexts be controlled,
// each guest has a grip (package hold) that takes off the GPU what a suspended guest
// leaves there, and sets the time slices that the policy wants.
package daemon
