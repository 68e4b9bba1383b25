package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/cmd/internal/output"
	"vgpud/guestagent/program"
	"vgpud/guestagent/program/programtest"
)

// TestNamesOfAProgram: what a terminal could take as a command stays text, whether a program's name, a
// library's or a compiler's message has it.
func TestNamesOfAProgram(t *testing.T) {
	const command = "\x1b]0;owned\x07"
	path := filepath.Join(t.TempDir(), "app"+command)
	p := programtest.Program{Needed: []string{"libcuda.so.1", "libnccl" + command + ".so"}, Machine: 183}
	if err := os.WriteFile(path, p.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := program.Options{}.ReadFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	r.Reasons, r.Notes = append(r.Reasons, "it needs "+command), append(r.Notes, "it may load "+command)
	r.Images = append(r.Images, program.Image{Where: command, Error: "line 1: " + command})
	k := checkOptions{Format: newFormat()}
	var b strings.Builder
	if err := k.printPrograms(&b, []*program.Report{r}); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if line != output.Printable(line) {
			t.Errorf("%q", line)
		}
	}
	if n := strings.Count(b.String(), `\x1b]0;owned\a`); n < 8 {
		t.Errorf("%d names are shown:\n%s", n, b.String())
	}
}
