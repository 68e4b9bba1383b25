package corpus

import "encoding/binary"

// File returns the case as a file for programs that run it on a real GPU: a sequence of
// little-endian 64-bit words, strings and byte strings. A string is a word with its length,
// followed by its bytes.
//
//	buffers   count, then for each: global's name, size, initial contents (empty: none)
//	steps     count, then for each: entry, grid x y z, block x y z, shared bytes,
//	          arguments: count, then for each: buffer's index + 1, offset; or 0, bytes
func (c *Case) File() []byte {
	var b []byte
	word := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	text := func(s []byte) {
		word(uint64(len(s)))
		b = append(b, s...)
	}
	index := make(map[string]uint64, len(c.Buffers))
	word(uint64(len(c.Buffers)))
	for i, buffer := range c.Buffers {
		index[buffer.Name] = uint64(i) + 1
		text([]byte(buffer.Global))
		word(uint64(buffer.Size))
		text(buffer.Init)
	}
	word(uint64(len(c.Steps)))
	for _, step := range c.Steps {
		text([]byte(step.Entry))
		for _, n := range step.Grid {
			word(uint64(n))
		}
		for _, n := range step.Block {
			word(uint64(n))
		}
		word(uint64(step.SharedBytes))
		word(uint64(len(step.Args)))
		for _, arg := range step.Args {
			word(index[arg.Buffer]) // 0 for a plain value
			if arg.Buffer != "" {
				word(arg.Offset)
			} else {
				text(arg.Bytes)
			}
		}
	}
	return b
}
