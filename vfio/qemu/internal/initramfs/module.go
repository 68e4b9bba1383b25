package main

import (
	"bytes"
	"encoding/binary"
)

// signatureMagic ends a signed kernel module.
const signatureMagic = "~Module signature appended~\n"

// signatureInfoLen is the size of struct module_signature (Linux,
// include/linux/module_signature.h), which comes before the magic; its last four bytes are the
// length, big-endian, of the signature before it.
const signatureInfoLen = 12

// unsigned returns a kernel module without its signature. Under TCG checking the signature takes as
// long as a tenth of the boot, and this program packed the module itself.
func unsigned(module []byte) []byte {
	rest, ok := bytes.CutSuffix(module, []byte(signatureMagic))
	if !ok || len(rest) < signatureInfoLen {
		return module
	}
	n := uint64(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	rest = rest[:len(rest)-signatureInfoLen]
	if n > uint64(len(rest)) {
		return module
	}
	return rest[:uint64(len(rest))-n]
}
