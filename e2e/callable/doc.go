// Package callable has the tests that kernels made callable (ptx/callable) compute, called by a
// kernel that is already running, what they compute when they are launched: every kernel of the
// corpus on the software GPU, called directly and through a pointer, by single warps and by whole
// blocks. It ships nothing.
package callable
