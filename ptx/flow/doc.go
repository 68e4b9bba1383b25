// Package flow analyzes the control flow of one PTX function: basic blocks, dominators,
// post-dominators, loops, and which values and branches are the same for all threads of a thread
// block. It executes nothing.
//
// [Build] makes a [Graph] from a function whose names ptx.Resolve has bound. Lanes of a warp that
// diverge at a branch reconverge at the branch's immediate post-dominator, [Graph.Reconvergence].
// [Graph.Uniformity] tells branches that a whole thread block takes the same way from those at
// which it may diverge.
//
// Everything is computed in time close to linear in the function's size, for any control flow,
// since the function comes from a guest.
package flow
