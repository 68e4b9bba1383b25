// Command edge redoes EDGE's evaluation of the preemption of warps (Hetherington, Lubeznov, Shah,
// Aamodt: EDGE, PACT 2019, figures 1 and 11 to 13) on package warps' model of the paper's GPU. The
// corpus' kernels are executed by the soft GPU, which records what their warps do, and the model
// times that. No hardware is needed, and the results are the same each time.
package main
