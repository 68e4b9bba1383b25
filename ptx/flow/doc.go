// Package flow analyses the control flow of one PTX function: basic blocks, dominators, post-dominators, loops, and
// which values and branches are the same for all threads of a thread block.
//
// [Build] makes a [Graph] from a function whose names ptx.Resolve has bound. A SIMT machine that lets a warp's lanes
// part at a branch brings them together again at the branch's immediate post-dominator, [Graph.Reconvergence].
// [Graph.Uniformity] tells branches that a whole thread block takes one way from those that may part it.
//
// Everything is computed in time close to linear in the function's size, whatever its shape: the function is a
// guest's. The package knows nothing of execution.
package flow
