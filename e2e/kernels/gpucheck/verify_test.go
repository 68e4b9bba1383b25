package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"vgpud/e2e/kernels"
)

// writeResults stands in for the runner: it writes what a right GPU would.
func writeResults(t *testing.T, c *kernels.Case, path string) []byte {
	t.Helper()
	var out []byte
	for _, b := range c.Buffers {
		switch b.Mode {
		case kernels.In:
			out = append(out, b.Init...)
		case kernels.Scratch:
			out = append(out, make([]byte, b.Size)...)
		default:
			out = append(out, b.Want...)
		}
	}
	var printed bytes.Buffer
	for _, line := range c.Printed {
		printed.WriteString(line + "\n")
	}
	for suffix, contents := range map[string][]byte{".out": out, ".printed": printed.Bytes()} {
		if err := os.WriteFile(path+suffix, contents, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestVerifyCase(t *testing.T) {
	for _, k := range kernels.All() {
		c := k.Case(kernels.Trivial, 1)
		path := filepath.Join(t.TempDir(), k.Name)
		out := writeResults(t, c, path)
		if err := verifyCase(c, path); err != nil {
			t.Errorf("right results are refused: %v", err)
		}
		for what, wrong := range map[string][]byte{"short": out[:len(out)-1], "long": append(out[:len(out):len(out)], 0)} {
			if err := os.WriteFile(path+".out", wrong, 0o644); err != nil {
				t.Fatal(err)
			}
			if verifyCase(c, path) == nil {
				t.Errorf("%v: a file too %s is accepted", c, what)
			}
		}
	}
}

// TestEncodeCase reads a file back as the runner does.
func TestEncodeCase(t *testing.T) {
	for _, k := range kernels.All() {
		c := k.Case(kernels.Trivial, 1)
		rest := encodeCase(c)
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
