package sealed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func file(t *testing.T, f *os.File, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// unsealed is memory of 4096 bytes with some of the seals.
func unsealed(t *testing.T, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	f := file(t, os.NewFile(uintptr(fd), "unsealed"), err)
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCheck(t *testing.T) {
	whole, err := New("whole", 4096)
	whole = file(t, whole, err)
	path := filepath.Join(t.TempDir(), "file")
	plain, err := os.Create(path)
	plain = file(t, plain, err)
	if err := plain.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	few, err := New("few", 4095)
	few = file(t, few, err)
	for name, c := range map[string]struct {
		f    *os.File
		want string // in the error; empty: none
	}{
		"sealed":          {whole, ""},
		"no seals":        {unsealed(t, 0), "its size may change"},
		"it can shrink":   {unsealed(t, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), "its size may change"},
		"it can grow":     {unsealed(t, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL), "its size may change"},
		"more seals fit":  {unsealed(t, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW), "its size may change"},
		"a file on disk":  {plain, "seals"},
		"too few, sealed": {few, "4095 bytes, want 4096"},
	} {
		err := Check(c.f, 4096)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := whole.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate what is sealed: %v", err)
	}
}
