// Package vram manages the address space of a context's GPU memory: which ranges are allocated, and
// where the next allocation goes. It touches no memory and is pure.
package vram
