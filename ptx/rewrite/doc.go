// Package rewrite has what transformations of PTX to PTX share: a [Copier] of the parts of a tree
// that they change, and [Names] that collide with none of the module's.
//
// A transformation writes its own code with names that begin with V_ or %V_, and takes them through
// [Names.Ours]. It is not for transformations themselves: guestagent/preempt makes kernels
// preemptible, ptx/callable makes functions of them. Nothing here is safe for concurrent use.
package rewrite
