// Package sandbox keeps a guest's processes, `vgpud vm` and its executors, from
// everything that they have no business with, so that a hole in what reads a
// guest's rings is a hole into that guest alone.
//
// Most of it is the daemon's work, before the process begins, so that the process
// never has a privilege to drop. A [Warden] gives each guest a [Cell]: a user of
// its own, which no other process of the host has; a mount namespace in which
// everything can only be read and /dev holds the guest's GPU alone; a control
// group with limits. The guest's executors are children of its process and so in
// the same cell. What remains is the process's own to do: [Limit] as it starts,
// and [Seal], which an executor calls once its context is on the GPU: from then on
// it makes the system calls that it needs for its work, and no others.
//
// What the host cannot do, such as all of the Warden's work where the daemon is not
// root, is left out and said: see [Warden.Missing].
package sandbox
