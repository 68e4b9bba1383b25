// Package abi has the numbers and layouts that the resource manager (RM) of NVIDIA's kernel driver
// and its callers agree on: calls, commands, classes and their parameters. Its only behaviour is to
// encode and decode.
//
// Everything is from the public headers of the open driver, branch 580
// (github.com/NVIDIA/open-gpu-kernel-modules, tag 580.142), under the headers' own names, so that a
// search in NVIDIA's sources finds it. The header stands above each block. Names that are in lower
// case there start with a capital here. The layouts are the same in the headers of 550 to 595,
// except where a comment says otherwise, and were used with 580.159.04.
//
// An ioctl's request is _IOWR('F', nr, size). The ioctl itself returns 0; the status of the call is
// inside the struct.
package abi

import (
	"encoding/binary"
	"fmt"
)

// Encode writes v, one of this package's structs, to the start of b, which must have room for it.
// It returns the number of bytes written.
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

// Size returns the size of v in bytes.
func Size(v any) int { return binary.Size(v) }
