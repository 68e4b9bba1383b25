package abi

import (
	"encoding/binary"
	"fmt"
)

// EntrySize is the size of a ring entry in bytes, of both rings.
const EntrySize = 64

// EntryVersion is the version byte of entries; it changes only with the major version of the ABI.
const EntryVersion = 1

// An Entry is one slot of a ring. A host decodes entries that it has copied out of shared memory,
// never the shared memory itself.
type Entry [EntrySize]byte

// Layout of the header that begins every submission entry.
const (
	headerOp      = 0 // u16
	headerVersion = 2 // u8
	headerFlags   = 3 // u8
	headerMore    = 4 // u8
	headerZero    = 5 // u8, zero
	headerAux     = 6 // u16
	headerCookie  = 8 // u64
	payload       = 16
)

// Flags of a submission entry.
type Flags uint8

const (
	// FlagQuiet asks for no completion unless the command fails.
	FlagQuiet Flags = 1 << iota

	flagsKnown = FlagQuiet
)

// MaxMore is the most continuation entries that a command may have.
const MaxMore = 64

// Header begins every submission entry.
type Header struct {
	Op    Opcode
	Flags Flags
	// More is the number of continuation entries that follow: 64 bytes of raw data each, published
	// by the same store of the put pointer, not commands of their own.
	More uint8
	// Aux is a small argument of the command; zero if it has none.
	Aux uint16
	// Cookie comes back in the completion; the host does not read it.
	Cookie uint64
}

// malformed returns an error about an entry that wraps StatusMalformed. It is kept off the path of
// good entries, which allocate nothing.
func malformed(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, StatusMalformed)...)
}

// DecodeHeader reads the header of a submission entry. The header is filled in as far as it can be
// read even when an error is returned, so that a completion can carry its cookie. Errors wrap
// [StatusMalformed] or [StatusUnsupportedVersion].
func DecodeHeader(e *Entry) (Header, error) {
	h := Header{
		Op:     Opcode(binary.LittleEndian.Uint16(e[headerOp:])),
		Flags:  Flags(e[headerFlags]),
		More:   e[headerMore],
		Aux:    binary.LittleEndian.Uint16(e[headerAux:]),
		Cookie: binary.LittleEndian.Uint64(e[headerCookie:]),
	}
	if e[headerVersion] != EntryVersion {
		return h, fmt.Errorf("entry version %d, not %d: %w", e[headerVersion], EntryVersion, StatusUnsupportedVersion)
	}
	c := h.Op.Command()
	if c == nil {
		return h, malformed("%v", h.Op)
	}
	if h.Flags&^flagsKnown != 0 || e[headerZero] != 0 {
		return h, malformed("%v: reserved bits in the header", h.Op)
	}
	if h.More != 0 && (!c.Inline || h.More > MaxMore) {
		return h, malformed("%v: %d continuation entries", h.Op, h.More)
	}
	return h, nil
}

// Encode writes the header into an entry and leaves the payload as it is.
func (h Header) Encode(e *Entry) {
	binary.LittleEndian.PutUint16(e[headerOp:], uint16(h.Op))
	e[headerVersion] = EntryVersion
	e[headerFlags] = byte(h.Flags)
	e[headerMore] = h.More
	e[headerZero] = 0
	binary.LittleEndian.PutUint16(e[headerAux:], h.Aux)
	binary.LittleEndian.PutUint64(e[headerCookie:], h.Cookie)
}

// zeroFrom reports whether the entry is zero from offset i on, a multiple of 4.
func (e *Entry) zeroFrom(i int) bool {
	if i&4 != 0 && i < EntrySize {
		if e.u32(i) != 0 {
			return false
		}
		i += 4
	}
	for ; i+8 <= EntrySize; i += 8 {
		if binary.LittleEndian.Uint64(e[i:i+8]) != 0 {
			return false
		}
	}
	return true
}

func (e *Entry) u16(i int) uint16       { return binary.LittleEndian.Uint16(e[i:]) }
func (e *Entry) u32(i int) uint32       { return binary.LittleEndian.Uint32(e[i:]) }
func (e *Entry) u64(i int) uint64       { return binary.LittleEndian.Uint64(e[i:]) }
func (e *Entry) putU16(i int, v uint16) { binary.LittleEndian.PutUint16(e[i:], v) }
func (e *Entry) putU32(i int, v uint32) { binary.LittleEndian.PutUint32(e[i:], v) }
func (e *Entry) putU64(i int, v uint64) { binary.LittleEndian.PutUint64(e[i:], v) }

// errReserved is preallocated: a guest that floods a ring with such entries costs no garbage.
var errReserved = malformed("reserved bits or impossible fields in the payload")

// MoreFor returns how many continuation entries n bytes take.
func MoreFor(n int) int { return (n + EntrySize - 1) / EntrySize }
