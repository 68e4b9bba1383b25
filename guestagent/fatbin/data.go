package fatbin

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	lz4Ratio   = 255     // bytes that one byte of an LZ4 block stands for at most
	zstdWindow = 8 << 20 // bytes of window that RFC 8878 recommends to support, of small images too
)

// Data returns the image: PTX without the zeros that end it, or machine code. The result may be
// part of the container.
func (e *Entry) Data() ([]byte, error) {
	b, err := e.decompress()
	if err == nil && e.Kind == PTX {
		b = bytes.TrimRight(b, "\x00")
	}
	return b, err
}

// decompress returns the payload, decompressed.
func (e *Entry) decompress() ([]byte, error) {
	if !e.compressed() {
		return e.payload, nil
	}
	if e.Size > e.limit {
		return nil, invalid(e.offset, "an image of %d bytes, more than %d", e.Size, e.limit)
	}
	if e.Flags&FlagZstd != 0 {
		return e.decompressZstd()
	}
	if e.Size > lz4Ratio*int64(len(e.payload)) {
		return nil, invalid(e.offset, "%d bytes of LZ4 for an image of %d", len(e.payload), e.Size)
	}
	out := make([]byte, e.Size)
	n, err := lz4.UncompressBlock(e.payload, out)
	if err != nil {
		return nil, invalid(e.offset, "LZ4: %v", err)
	}
	if int64(n) != e.Size {
		return nil, invalid(e.offset, "LZ4: an image of %d bytes instead of %d", n, e.Size)
	}
	return out, nil
}

// decompressZstd decompresses a Zstandard frame.
func (e *Entry) decompressZstd() ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(max(e.Size, zstdWindow))))
	if err != nil {
		return nil, invalid(e.offset, "Zstandard: %v", err)
	}
	defer d.Close()
	out, err := d.DecodeAll(e.payload, nil)
	if err != nil {
		return nil, invalid(e.offset, "Zstandard: %v", err)
	}
	if int64(len(out)) != e.Size {
		return nil, invalid(e.offset, "Zstandard: an image of %d bytes instead of %d", len(out), e.Size)
	}
	return out, nil
}

// Relocatable reports whether machine code has to be linked before it can be loaded, as what
// "nvcc -rdc=true -c" makes.
func Relocatable(code []byte) bool {
	const typeAt, relocatable = 16, 1 // e_type, ET_REL
	return Detect(code) == FormatELF && len(code) >= typeAt+2 &&
		binary.LittleEndian.Uint16(code[typeAt:]) == relocatable
}

// elfSize returns the length of the ELF file that begins with head: its section headers are last,
// or its program headers are, in what CUDA's tools write.
func elfSize(head []byte) (int64, error) {
	le := binary.LittleEndian
	if len(head) < ELFHead || head[4] != 2 || head[5] != 1 {
		return 0, invalid(0, "no header of a 64-bit ELF file")
	}
	end := uint64(ELFHead)
	for _, table := range []struct{ offset, size, count int }{{32, 54, 56}, {40, 58, 60}} {
		at := le.Uint64(head[table.offset:])
		n := uint64(le.Uint16(head[table.size:])) * uint64(le.Uint16(head[table.count:]))
		if at > math.MaxInt64-n {
			return 0, invalid(0, "an ELF file whose headers are at %#x", at)
		}
		if n > 0 {
			end = max(end, at+n)
		}
	}
	return int64(end), nil
}
