package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"vgpud/gpu/corpus"
)

// writeResults writes the results of a correct GPU, in place of the runner.
func writeResults(t *testing.T, c *corpus.Case, path string) []byte {
	t.Helper()
	var out []byte
	for _, b := range c.Buffers {
		switch b.Mode {
		case corpus.In:
			out = append(out, b.Init...)
		case corpus.Scratch:
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
	for _, k := range corpus.All() {
		c := k.Case(corpus.Trivial, 1)
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

func TestExportPTX(t *testing.T) {
	for _, arch := range corpus.Arches() {
		dir := filepath.Join(t.TempDir(), string(arch))
		if err := exportPTX(dir, arch); err != nil {
			t.Fatal(err)
		}
		for _, k := range corpus.All() {
			got, err := os.ReadFile(filepath.Join(dir, k.Name+".ptx"))
			if err != nil || string(got) != k.PTX(arch) {
				t.Errorf("%s for %s: %v, or the file is not the kernel's PTX", k.Name, arch, err)
			}
		}
	}
}
