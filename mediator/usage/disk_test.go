package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestBrokenDisk(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		want  string
	}{
		"full":      {unix.ENOSPC, "no space left"},
		"read-only": {unix.EROFS, "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.samples = []Sample{guest("a", w.boot+1), guest("b", w.boot+1)}
			w.pass(Round)
			w.problem("")
			w.fault = c.fault
			for range 1000 {
				w.samples[0].Used += time.Second
				w.pass(Round)
			}
			w.samples[1].Used = time.Second
			w.r.Ended(w.samples[1])
			w.samples = w.samples[:1]
			w.pass(Round)
			w.problem(c.want)
			if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, w.log.String())
			}
			w.fault = nil
			w.pass(Round)
			w.problem("")
			if got := w.total().GPUTime(); got != 1001*time.Second {
				t.Errorf("recorded %v, want 1001s", got)
			}
			// At the time when it was used.
			if got := w.report(Query{From: begin.Add(time.Hour), To: begin.Add(time.Hour + time.Minute)}).Total.GPUTime(); got != 12*time.Second {
				t.Errorf("in a minute without a disk: %v, want 12s", got)
			}
		})
	}
}

func TestNoDatabaseAtFirst(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Dir(w.o.Path)
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the place of the directory
		t.Fatal(err)
	}
	w.open()
	w.problem("not a directory")
	w.samples = []Sample{guest("a", w.boot+time.Hour), guest("b", w.boot+time.Hour)}
	w.samples[0].Used, w.samples[1].Used = time.Second, 2*time.Second
	w.r.Ended(w.samples[1])
	w.samples = w.samples[:1]
	w.pass(Round)
	if _, err := w.r.Report(t.Context(), Query{From: begin, To: w.wall}); !errors.Is(err, errNotOpen) {
		t.Errorf("a report without a database: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	w.problem("")
	if got := w.total().GPUTime(); got != 3*time.Second {
		t.Errorf("recorded %v, want 3s", got)
	}
}

func TestCorruptDatabase(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"no database": func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 1000)) },
		"header":      func(b []byte) []byte { b[20] ^= 0xff; b[50] ^= 0xff; b[100] = 0xff; return b },
		"pages": func(b []byte) []byte {
			for i := pageSize; i < len(b); i++ {
				b[i] = 0xa5
			}
			return b
		},
		"half": func(b []byte) []byte { return b[:len(b)/2/pageSize*pageSize+100] },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.samples = []Sample{guest("a", w.boot+1)}
			for range 100 {
				w.samples[0].Used += time.Second
				w.pass(Round)
			}
			if err := w.r.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(w.o.Path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(w.o.Path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			w.open()
			w.samples[0].Used += time.Second
			w.pass(2 * Round)
			if _, err := w.r.Report(t.Context(), Query{From: begin, To: w.wall}); err != nil {
				w.pass(Round)
			}
			w.problem("was corrupt")
			if kept, err := filepath.Glob(w.o.Path + ".corrupt-*"); err != nil || len(kept) == 0 {
				t.Errorf("kept: %v, %v", kept, err)
			}
			if !strings.Contains(w.log.String(), "was corrupt") {
				t.Errorf("not logged:\n%s", w.log.String())
			}
			before := w.total().GPUTime()
			w.samples[0].Used += time.Second
			w.pass(Round)
			if got := w.total().GPUTime() - before; got != time.Second {
				t.Errorf("the new database has %v more, want 1s", got)
			}
		})
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage[*].sqlite")
	for i := range maxQuarantined + 2 {
		for _, suffix := range []string{"", "-wal"} {
			if err := os.WriteFile(path+suffix, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := quarantine(path, begin.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2*maxQuarantined || !strings.Contains(entries[0].Name(), "T100002") {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	w := newWorld(t)
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	w.o.Path += "2"
	w.o.MaxBytes = 400 << 10
	w.o.Keep.Intervals = -1
	w.open()
	for i := range 50 {
		w.samples = append(w.samples, guest(fmt.Sprint("a", i), w.boot+1))
	}
	for range 600 {
		for i := range w.samples {
			w.samples[i].Used += time.Second
		}
		w.skip(time.Minute)
		w.r.round()
	}
	st, err := os.Stat(w.o.Path)
	if err != nil || st.Size() > w.o.MaxBytes {
		t.Errorf("%d bytes, want at most %d: %v", st.Size(), w.o.MaxBytes, err)
	}
	w.r.round()
	if got := w.total().GPUTime(); got != 50*600*time.Second {
		t.Errorf("recorded %v, want %v", got, 50*600*time.Second)
	}
	if !strings.Contains(w.log.String(), "oldest rows are removed") {
		t.Errorf("not logged:\n%s", w.log.String())
	}
}

func TestFilesArePrivate(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	w.pass(Round)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		st, err := os.Stat(w.o.Path + suffix)
		if err != nil || st.Mode() != fs.FileMode(0o600) {
			t.Errorf("%s: %v, %v", suffix, st.Mode(), err)
		}
	}
	// A link in the database's place is not followed.
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.o.Path, w.o.Path+".else"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.o.Path+".else", w.o.Path); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.problem("too many levels of symbolic links")
}

func TestLaterVersion(t *testing.T) {
	w := newWorld(t)
	if _, err := w.r.store.write.Exec("UPDATE meta SET value = 9 WHERE key = 'version'"); err != nil {
		t.Fatal(err)
	}
	if err := w.r.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.problem("of version 9")
	if _, err := os.Stat(w.o.Path); err != nil {
		t.Error(err)
	}
}

func TestEarlierVersion(t *testing.T) {
	w := newWorld(t)
	a := guest("a", time.Hour)
	a.Used = time.Second
	w.samples = []Sample{a}
	w.pass(Round)
	for _, table := range append(tables[:], "marks") {
		column := "unaccounted_us"
		if table == "marks" {
			column = "unaccounted_ns"
		}
		if _, err := w.r.store.write.Exec("ALTER TABLE " + table + " DROP COLUMN " + column); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.r.store.write.Exec("UPDATE meta SET value = 1 WHERE key = 'version'"); err != nil {
		t.Fatal(err)
	}
	w.samples = nil
	_ = w.r.Close() // its statements don't fit
	w.open()
	w.problem("")
	a.Used, a.Unaccounted = 3*time.Second, time.Second
	w.samples = []Sample{a}
	w.pass(Round)
	if got := w.total(); got.GPUMicros != 3e6 || got.UnaccountedMicros != 1e6 {
		t.Errorf("%+v", got)
	}
	if version, err := w.r.store.meta(keyVersion); err != nil || version != storeVersion {
		t.Errorf("version %d, %v", version, err)
	}
}

func TestUnsureCommit(t *testing.T) {
	w := newWorld(t)
	w.samples = []Sample{guest("a", w.boot+1)}
	w.samples[0].Used = time.Second
	w.pass(Round)
	s := w.r.store
	b := &batch{number: s.number + 1, rows: map[key]Sums{{begin.Unix(), Subject{VM: "a", GPU: "gpu0", Owner: "alice"}}: {GPUMicros: 1_000_000}}}
	for range 2 {
		if err := s.commit(t.Context(), b, w.wall); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.total().GPUTime(); got != 2*time.Second {
		t.Errorf("recorded %v, want 2s", got)
	}
}
