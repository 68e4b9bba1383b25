package vm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu"
)

// talk is an executor that writes all kinds of output and dies.
func talk() error {
	fmt.Fprintln(os.Stderr, `time=1 level=WARN msg="a word of warning"`)
	fmt.Fprintln(os.Stderr, `{"level":"ERROR","msg":"an error"}`)
	fmt.Fprintln(os.Stdout, "a library's")
	fmt.Fprint(os.Stderr, strings.Repeat("x", 3*maxLineBytes), "\n\n")
	for i := range 400 {
		fmt.Fprintf(os.Stderr, "goroutine %d\n", i)
	}
	fmt.Fprint(os.Stderr, "the last word")
	os.Exit(3)
	return nil
}

// records is a handler that sends all records to a channel.
type records struct {
	slog.Handler
	to chan<- slog.Record
}

func (r records) Handle(_ context.Context, rec slog.Record) error {
	r.to <- rec
	return nil
}

func (r records) Enabled(context.Context, slog.Level) bool { return true }
func (r records) WithAttrs([]slog.Attr) slog.Handler       { return r }

// attrOf returns an attribute's text.
func attrOf(r slog.Record, key string) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			text = a.Value.String()
		}
		return true
	})
	return text
}

// TestExecutorOutput checks that an executor's output is logged as such and in bounded parts, and
// the end of it with its death.
func TestExecutorOutput(t *testing.T) {
	b := testExecutors(t)
	b.command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=talk")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // as the program's commands do
		return cmd
	}
	logged := make(chan slog.Record, 1000)
	b.log = slog.New(records{slog.DiscardHandler, logged})
	b.CreateContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 1, Generation: 1}})
	var w proctest.Wait
	look := time.NewTicker(time.Second)
	defer look.Stop()
	levels := make(map[string]slog.Level)
	for {
		select {
		case r := <-logged:
			if r.Message == "executor output" {
				text := attrOf(r, "text")
				if len(text) > maxLineBytes {
					t.Errorf("a line of %d bytes", len(text))
				}
				levels[text] = r.Level
				continue
			}
			if r.Message != "executor died" {
				continue
			}
			if last := attrOf(r, "last"); !strings.HasSuffix(last, "goroutine 399\nthe last word\n") || len(last) > keptBytes {
				t.Errorf("last words %q", last)
			}
		case <-look.C:
			if err := w.Over(); err != nil {
				t.Fatalf("the executor's death is not logged: %v", err)
			}
			continue
		}
		break
	}
	for text, want := range map[string]slog.Level{
		`time=1 level=WARN msg="a word of warning"`: slog.LevelWarn, `{"level":"ERROR","msg":"an error"}`: slog.LevelError,
		"a library's": slog.LevelInfo, "the last word": slog.LevelInfo,
	} {
		if got, ok := levels[text]; !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// TestExecutorsHaveNoLog checks that an executor does not inherit the log of the guest's process.
func TestExecutorsHaveNoLog(t *testing.T) {
	log, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b := testExecutors(t)
	linger := b.command
	b.command = func() *exec.Cmd {
		cmd := linger()
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	}
	pid := create(t, b, vgpu.ContextRef{Slot: 0, Generation: 1}, 0)
	for fd := range 3 {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if want := [...]string{"/dev/null", "pipe:", "pipe:"}[fd]; err != nil || !strings.HasPrefix(name, want) {
			t.Errorf("descriptor %d is %q, %v; want %s", fd, name, err, want)
		}
	}
}
