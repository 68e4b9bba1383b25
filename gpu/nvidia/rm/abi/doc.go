// Package abi is what the resource manager (RM) of NVIDIA's kernel driver and its
// callers agree on: the numbers of calls, commands and classes, and the layouts of
// their parameters. It has no behaviour but to encode and decode.
//
// Everything is from the public headers of the open driver, branch 580
// (github.com/NVIDIA/open-gpu-kernel-modules, tag 580.142), and keeps their names in
// the comments; each block says which header. The layouts used here read the same in
// the headers of 550 to 595, except where a comment says otherwise; they were tried on
// 580.159.04.
//
// An ioctl's request is _IOWR('F', nr, size). The ioctl itself answers 0; the call's
// own status is inside the struct.
package abi

import (
	"encoding/binary"
	"fmt"
)

// Encode writes v, one of this package's structs, to the start of b, which must have
// its size. It returns how many bytes those are.
func Encode(b []byte, v any) (int, error) {
	n, err := binary.Encode(b, binary.LittleEndian, v)
	if err != nil {
		return 0, fmt.Errorf("encode %T: %w", v, err)
	}
	return n, nil
}

// Decode reads v, a pointer to one of this package's structs, from the start of b.
func Decode(b []byte, v any) error {
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		return fmt.Errorf("decode %T from %d bytes: %w", v, len(b), err)
	}
	return nil
}

// Size is how many bytes v takes.
func Size(v any) int { return binary.Size(v) }
