package corpus

import (
	"encoding/binary"
	"testing"
)

// TestCaseFile reads a file back like the runner.
func TestCaseFile(t *testing.T) {
	for _, k := range All() {
		c := k.Case(Trivial, 1)
		rest := c.File()
		word := func() uint64 {
			v := binary.LittleEndian.Uint64(rest)
			rest = rest[8:]
			return v
		}
		text := func() string {
			n := word()
			s := string(rest[:n])
			rest = rest[n:]
			return s
		}
		if n := word(); n != uint64(len(c.Buffers)) {
			t.Fatalf("%v: %d buffers, want %d", c, n, len(c.Buffers))
		}
		for _, b := range c.Buffers {
			if global, size, init := text(), word(), text(); global != b.Global || size != uint64(b.Size) || init != string(b.Init) {
				t.Errorf("%v: buffer %s reads back otherwise", c, b.Name)
			}
		}
		if n := word(); n != uint64(len(c.Steps)) {
			t.Fatalf("%v: %d steps, want %d", c, n, len(c.Steps))
		}
		for i, step := range c.Steps {
			if entry := text(); entry != step.Entry {
				t.Errorf("%v: step %d launches %s, want %s", c, i, entry, step.Entry)
			}
			dims := [7]uint64{}
			for k := range dims {
				dims[k] = word()
			}
			g, b := step.Grid, step.Block
			if want := [7]uint64{uint64(g[0]), uint64(g[1]), uint64(g[2]), uint64(b[0]), uint64(b[1]), uint64(b[2]), uint64(step.SharedBytes)}; dims != want {
				t.Errorf("%v: step %d has dimensions %v, want %v", c, i, dims, want)
			}
			if n := word(); n != uint64(len(step.Args)) {
				t.Fatalf("%v: step %d has %d arguments, want %d", c, i, n, len(step.Args))
			}
			for p, arg := range step.Args {
				if index := word(); index == 0 {
					if value := text(); arg.Buffer != "" || value != string(arg.Bytes) {
						t.Errorf("%v: step %d: argument %d reads back otherwise", c, i, p)
					}
				} else if offset := word(); c.Buffers[index-1].Name != arg.Buffer || offset != arg.Offset {
					t.Errorf("%v: step %d: argument %d reads back otherwise", c, i, p)
				}
			}
		}
		if len(rest) != 0 {
			t.Errorf("%v: %d bytes after the last step", c, len(rest))
		}
	}
}
