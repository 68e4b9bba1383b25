package journal

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func text(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }

func TestRecords(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(New(&out, slog.HandlerOptions{Level: slog.LevelDebug}, text))
	log.Debug("a", "level", "x")
	log.Info("b\n<0>forged")
	log.With("guest", "web1").Warn("c")
	log.WithGroup("g").Error("d", "time", 1)
	const want = "<7>msg=a level=x\n<6>msg=\"b\\n<0>forged\"\n<4>msg=c guest=web1\n<3>msg=d g.time=1\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// lines collects what is written to it, one record a call.
type lines struct{ all []string }

func (l *lines) Write(b []byte) (int, error) {
	l.all = append(l.all, string(b))
	return len(b), nil
}

// TestManyWriters checks that a record has its own priority whoever else logs.
func TestManyWriters(t *testing.T) {
	var out lines
	log := slog.New(New(&out, slog.HandlerOptions{}, text))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 200 {
				if i%2 == 0 {
					log.Info("six")
				} else {
					log.With("a", 1).Error("three")
				}
			}
		})
	}
	wg.Wait()
	for _, l := range out.all {
		if l != "<6>msg=six\n" && l != "<3>msg=three a=1\n" {
			t.Fatalf("%q", l)
		}
	}
	if len(out.all) != 800 {
		t.Errorf("%d records, want 800", len(out.all))
	}
}

func TestConnected(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{
		"":                                     false,
		"1":                                    false,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino):   true,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
	} {
		t.Setenv("JOURNAL_STREAM", stream)
		if got := Connected(f); got != want {
			t.Errorf("JOURNAL_STREAM=%s: %v, want %v", stream, got, want)
		}
	}
}
