package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read is the inverse of write, implemented after the format's description.
func read(t *testing.T, p []byte) []entry {
	t.Helper()
	var entries []entry
	offset := 0
	take := func(n int) []byte {
		if offset+n > len(p) {
			t.Fatalf("the archive ends at %d, within %d bytes from %d", len(p), n, offset)
		}
		b := p[offset : offset+n]
		offset += n
		for ; offset%4 != 0; offset++ {
			if p[offset] != 0 {
				t.Fatalf("padding at %d is %#x", offset, p[offset])
			}
		}
		return b
	}
	for {
		if got := string(p[offset : offset+6]); got != "070701" {
			t.Fatalf("magic %q at %d", got, offset)
		}
		var f [13]uint32
		for i := range f {
			if _, err := fmt.Sscanf(string(p[offset+6+8*i:offset+14+8*i]), "%08x", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		head := take(110 + int(f[11]))
		e := entry{name: string(head[110 : len(head)-1]), mode: f[1], major: f[9], minor: f[10]}
		e.data = bytes.Clone(take(int(f[6])))
		if e.name == trailer {
			return entries
		}
		entries = append(entries, e)
	}
}

func TestArchiveHoldsWhatWasPacked(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{"empty": {}, "three": []byte("abc"), "page": bytes.Repeat([]byte("p"), 4096)}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "page"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	args := []string{"lib/modules/order=" + filepath.Join(dir, "three"), "init=" + filepath.Join(dir, "page"), "lib/x=" + filepath.Join(dir, "empty")}
	if err := pack(out, args); err != nil {
		t.Fatal(err)
	}
	p, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{name: "dev", mode: modeDir | 0o755},
		{name: "dev/console", mode: modeDevice | 0o600, major: 5, minor: 1},
		{name: "init", mode: modeFile | 0o755, data: files["page"]},
		{name: "lib", mode: modeDir | 0o755},
		{name: "lib/modules", mode: modeDir | 0o755},
		{name: "lib/modules/order", mode: modeFile | 0o640, data: files["three"]},
		{name: "lib/x", mode: modeFile | 0o640},
	}
	got := read(t, p)
	for i := range got {
		if len(got[i].data) == 0 {
			got[i].data = nil
		}
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); d != "" {
		t.Error("-want +got", d)
	}
}

func TestNamesOutsideTheArchiveAreRefused(t *testing.T) {
	for _, arg := range []string{"", "init", "=x", "/init=x", "a//b=x", "a/=x"} {
		if err := pack(filepath.Join(t.TempDir(), "out"), []string{arg}); err == nil {
			t.Errorf("%q is accepted", arg)
		}
	}
}

func TestModulesLoseTheirSignatures(t *testing.T) {
	signed := func(n uint32, signature string) string {
		return "module" + signature + string([]byte{0, 0, 2, 0, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + signatureMagic
	}
	for _, c := range []struct{ module, want string }{
		{"", ""},
		{"module", "module"},
		{signed(9, "signature"), "module"},
		{signed(0, ""), "module"},
		{signed(15, "signature"), ""},
		{signed(16, "signature"), signed(16, "signature")},
		{signed(1<<32-1, ""), signed(1<<32-1, "")},
		{signatureMagic, signatureMagic},
	} {
		if got := string(unsigned([]byte(c.module))); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.module, got, c.want)
		}
	}
}
