package vm

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/internal/proctest"
	"vgpud/mediator/sandbox"
	"vgpud/mediator/vgpu"
)

// stuckWord is what a stuck executor prints once it is.
const stuckWord = "it waits now"

// stuck is an executor, confined as one with a context, that never becomes ready.
func stuck() error {
	never, silent, err := os.Pipe()
	if err != nil {
		return err
	}
	if err := sandbox.Limit(); err != nil {
		return err
	}
	if err := sandbox.Seal(sandbox.Listed); err != nil {
		return err
	}
	go waitForNothing(never)
	waitForNothing(never)
	return silent.Close()
}

// deaf is one that does not even tell what it waits for.
func deaf() error {
	signal.Ignore(unix.SIGQUIT)
	never, silent, err := os.Pipe()
	if err != nil {
		return err
	}
	waitForNothing(never)
	return silent.Close()
}

// waitForNothing reads from a pipe to which nobody writes.
func waitForNothing(never *os.File) {
	fmt.Fprintln(os.Stderr, stuckWord)
	_, err := never.Read(make([]byte, 1))
	fmt.Fprintln(os.Stderr, "it waits no more:", err)
}

// TestStuckExecutorTellsWhatItWaitsFor checks that an executor that is not ready in time is asked for
// its goroutines, that they are logged within the log's limits, and that it is killed all the same.
func TestStuckExecutorTellsWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		role   string
		prints bool
	}{{"stuck", true}, {"deaf", false}} {
		t.Run(c.role, func(t *testing.T) {
			b := testExecutors(t)
			var now clock.Sim
			b.clock = &now
			b.command = func() *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), roleVariable+"="+c.role)
				return cmd
			}
			logged := make(chan slog.Record, 1000)
			b.log = slog.New(LimitLog(records{slog.DiscardHandler, logged}, &now))
			await := func(message string) (seen []slog.Record) {
				t.Helper()
				for {
					r := proctest.Receive(t, fmt.Sprintf("%q is logged", message), logged)
					if seen = append(seen, r); r.Message == message {
						return seen
					}
				}
			}
			sleeps := func() {
				t.Helper()
				asleep := make(chan struct{})
				go func() {
					defer close(asleep)
					now.AwaitWaiters(1)
				}()
				proctest.Receive(t, "it waits for the clock", asleep)
			}
			b.CreateContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 1, Generation: 1}})
			await("executor output") // stuckWord
			sleeps()
			now.Advance(readyLimit)
			var threads, goroutines string
			if !c.prints {
				sleeps()
				now.Advance(quitGrace)
			}
			for _, r := range await("executor died") {
				switch r.Message {
				case "the executor's threads":
					threads = attrOf(r, "threads")
				case "the executor's goroutines":
					text := attrOf(r, "text")
					if len(text) > pieceBytes {
						t.Errorf("a piece of %d bytes", len(text))
					}
					goroutines += text + "\n"
				case "executor died":
					if err := attrOf(r, "err"); !strings.Contains(err, "not ready in time") {
						t.Errorf("died of %q", err)
					}
				}
			}
			if !regexp.MustCompile(`^[A-Z] \d\S*s on \d+(, |$)`).MatchString(threads) {
				t.Errorf("its threads are %q", threads)
			}
			if got := strings.Count(goroutines, "vm.waitForNothing dump_test.go:"); c.prints && got < 1 || !c.prints && got > 0 {
				t.Errorf("its goroutines:\n%s", goroutines)
			}
		})
	}
}

func TestBriefGoroutines(t *testing.T) {
	const dump = `SIGQUIT: quit
PC=0x46b3a1 m=0 sigcode=0

goroutine 0 gp=0x9b0 m=0 [idle]:
runtime.futex(0x9b0d18, 0x80)
	runtime/sys_linux_amd64.s:557 +0x21 fp=0x7ffd pc=0x46b3a1

goroutine 7 gp=0xc01 m=nil [select, 2 minutes]:
vgpud/mediator/executor.(*Executor).listen(0xc0001, {0x7, 0x1})
	/somewhere/mediator/executor/process.go:510 +0x1b8
created by sync.(*WaitGroup).Go in goroutine 1
	/usr/local/go/src/sync/waitgroup.go:239 +0x73

rax    0xca
rip    0x46b3a1
`
	want := `goroutine 0 gp=0x9b0 m=0 [idle]: < runtime.futex sys_linux_amd64.s:557
goroutine 7 gp=0xc01 m=nil [select, 2 minutes]: < vgpud/mediator/executor.(*Executor).listen process.go:510` +
		` < created by sync.(*WaitGroup).Go in goroutine 1 waitgroup.go:239`
	if diff := cmp.Diff(want, brief(dump)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(brief(strings.Repeat(dump, 1000))); n > briefBytes || n < briefBytes/2 {
		t.Errorf("a thousand are %d bytes", n)
	}
	if got := brief("none\n\tof it\n"); got != "" {
		t.Errorf("what is no dump: %q", got)
	}
	if diff := cmp.Diff([]string{"ab", "cdefg", "h"}, pieces("ab\ncdefgh", 5)); diff != "" {
		t.Errorf("pieces, -want +got:\n%s", diff)
	}
}

func TestThreadStates(t *testing.T) {
	proc := t.TempDir()
	for tid, stat := range map[string]string{
		"12": "12 (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 150 25 0 0 5 -15 9 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 17 1 0 0 0 0 0\n",
		"13": "13 (gone) ",
	} {
		dir := filepath.Join(proc, "12", "task", tid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := threadStates(proc, 12), "S 1.75s on 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := threadStates(proc, 14); got != "" {
		t.Errorf("of no process: %q", got)
	}
}

func TestActiveTime(t *testing.T) {
	proc := t.TempDir()
	for tid, stat := range map[string]string{"12": "2000000 5000000000 17\n", "13": "1000000 0 1\n", "14": "?"} {
		dir := filepath.Join(proc, "12", "task", tid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "schedstat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := activeTime(proc, 12), 5003*time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := activeTime(proc, 13); got != 0 {
		t.Errorf("of no process: %v", got)
	}
}
