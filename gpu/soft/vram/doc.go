// Package vram keeps the books of a context's GPU memory: which ranges of its address space are allocated, and where
// the next allocation goes. It touches no memory and is pure.
package vram
