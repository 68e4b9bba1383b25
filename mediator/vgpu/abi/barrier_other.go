//go:build !amd64

package abi

// barrier does nothing: a swap is a full barrier, and guests are x86-64.
func barrier() {}
