// Package variables has the tests that kernels which are bound to the variables of another module
// (ptx/variables) do to these what they do when they are launched from that module: the corpus, the
// kernels that are hard to make preemptible, and generated ones, on the software GPU. It ships nothing.
package variables
