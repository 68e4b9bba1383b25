package fatbin

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is how an image is stored.
type Compression int

// The ways to store an image.
const (
	Stored Compression = iota // as it is
	LZ4
	Zstd
)

// Image is what [Append] writes an entry of.
type Image struct {
	Kind         Kind
	Major, Minor int // of PTX, its version
	SM           int
	Name         string // of the source file, or ""
	Flags        uint64 // besides those that Append sets: 64-bit, Linux, compression
	Data         []byte
	Compression  Compression // LZ4 falls back to Stored where it does not make the image smaller
}

// Append appends a container with the images to dst. Equal images give equal bytes.
func Append(dst []byte, images ...Image) ([]byte, error) {
	le := binary.LittleEndian
	start := len(dst)
	dst = le.AppendUint32(dst, containerMagic)
	dst = le.AppendUint16(dst, containerVersion)
	dst = le.AppendUint16(dst, containerHeader)
	dst = le.AppendUint64(dst, 0) // set below
	for i, img := range images {
		var err error
		if dst, err = appendEntry(dst, img); err != nil {
			return nil, fmt.Errorf("image %d: %w", i, err)
		}
	}
	le.PutUint64(dst[start+8:], uint64(len(dst)-start-containerHeader))
	return dst, nil
}

func appendEntry(dst []byte, img Image) ([]byte, error) {
	le := binary.LittleEndian
	data := img.Data
	if img.Kind == PTX {
		data = append(data[:len(data):len(data)], 0)
	}
	payload, flag, err := compress(data, img.Compression)
	if err != nil {
		return nil, err
	}
	if img.SM < 0 || img.SM >= 1<<20 || img.Major < 0 || img.Major > math.MaxUint16 || img.Minor < 0 || img.Minor > math.MaxUint16 ||
		len(payload) > math.MaxUint32 || len(img.Name) > math.MaxUint16 {
		return nil, fmt.Errorf("an image for sm_%d, version %d.%d, of %d bytes: out of range", img.SM, img.Major, img.Minor, len(payload))
	}
	name := append([]byte(img.Name), make([]byte, -len(img.Name)&7)...)
	padding := -len(payload) & 7
	var stored, size, nameAt int
	if flag != 0 {
		stored, size = len(payload), len(data)
	}
	if len(name) > 0 {
		nameAt = entryHeader
	}
	dst = le.AppendUint16(dst, uint16(img.Kind))
	dst = le.AppendUint16(dst, 0x101)
	dst = le.AppendUint32(dst, uint32(entryHeader+len(name)))
	dst = le.AppendUint64(dst, uint64(len(payload)+padding))
	dst = le.AppendUint32(dst, uint32(stored))
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint16(dst, uint16(img.Minor))
	dst = le.AppendUint16(dst, uint16(img.Major))
	dst = le.AppendUint32(dst, uint32(img.SM))
	dst = le.AppendUint32(dst, uint32(nameAt))
	dst = le.AppendUint32(dst, uint32(len(img.Name)))
	dst = le.AppendUint64(dst, img.Flags&^(FlagLZ4|FlagZstd)|Flag64Bit|FlagLinux|flag)
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint64(dst, uint64(size))
	dst = append(dst, name...)
	dst = append(dst, payload...)
	return append(dst, make([]byte, padding)...), nil
}

// compress returns the payload for data, and the flag that says how it is compressed.
func compress(data []byte, how Compression) ([]byte, uint64, error) {
	switch how {
	case Stored:
		return data, 0, nil
	case LZ4:
		out := make([]byte, len(data))
		n, err := (&lz4.CompressorHC{Level: lz4.Level9}).CompressBlock(data, out)
		if err != nil || n == 0 || n >= len(data) { // no room: it would not become smaller
			return data, 0, nil
		}
		return out[:n], FlagLZ4, nil
	case Zstd:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
		if err != nil {
			return nil, 0, err
		}
		defer w.Close()
		return w.EncodeAll(data, nil), FlagZstd, nil
	}
	return nil, 0, fmt.Errorf("compression %d is not known", how)
}
