package memfd

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const size = 8192

// newFile makes a file in memory of size bytes with these seals.
func newFile(t *testing.T, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestCheck: what can be cut short, or is of another size, or is no file in memory, is refused.
func TestCheck(t *testing.T) {
	sealed := newFile(t, Seals)
	if err := Check(sealed, size); err != nil {
		t.Errorf("a sealed file: %v", err)
	}
	if err := sealed.Truncate(0); err == nil {
		t.Error("a sealed file was cut short")
	}
	if err := Check(newFile(t, Seals|unix.F_SEAL_FUTURE_WRITE), size); err != nil {
		t.Errorf("a file with more seals than are asked for: %v", err)
	}
	for _, wrong := range []int64{0, size - 1, size + 1} {
		if Check(sealed, wrong) == nil {
			t.Errorf("a file of %d bytes passes for one of %d", size, wrong)
		}
	}
	for _, one := range []int{unix.F_SEAL_SHRINK, unix.F_SEAL_GROW, unix.F_SEAL_SEAL} {
		if Check(newFile(t, Seals&^one), size) == nil {
			t.Errorf("a file without seal %#x passes", one)
		}
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(size); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, f := range []*os.File{plain, r} {
		if Check(f, size) == nil {
			t.Errorf("%s passes", f.Name())
		}
	}
}
