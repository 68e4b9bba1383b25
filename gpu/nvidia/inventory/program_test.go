package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// roleVariable makes this binary act as vgpu-nvml, and selects its behaviour.
const roleVariable = "VGPUD_TEST_NVML"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	open := func() (Library, error) {
		switch role {
		case "missing":
			return nil, fmt.Errorf("no library: %w", ErrUnavailable)
		case "hangs":
			hang()
		case "dies":
			fmt.Fprintln(os.Stderr, "loading\nsymbol lookup error: nvmlInit")
			os.Exit(127)
		case "falls silent":
			fmt.Println(`{"inventory":{"driver":"580.0","gpus":[]}}`)
			hang()
		case "garbage":
			fmt.Println("NVRM: 42")
		}
		return &fake{errors: []uint64{31, 79}}, nil
	}
	var err error
	if os.Args[1] == "--once" {
		err = Print(os.Stdout, open)
	} else {
		err = Serve(context.Background(), os.Stdin, os.Stdout, time.Millisecond, open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hang blocks in the kernel, like a stuck library. Without any runnable goroutine Go's runtime
// would end the program.
func hang() {
	for {
		_ = unix.Pause() // until a signal, which changes nothing
	}
}

// fake is a library with one GPU that reports errors, and then the driver's end.
type fake struct {
	errors []uint64
	closed atomic.Bool
}

var theInventory = Inventory{Driver: "580.0", CUDA: 13000, GPUs: []GPU{{UUID: "GPU-1", Name: "fake"}}}

func (f *fake) Inventory() (Inventory, error) { return theInventory, nil }

func (f *fake) Samples() ([]Sample, error) {
	return []Sample{{UUID: "GPU-1", PowerWatts: number(99.)}}, nil
}

func (f *fake) Next(context.Context) (XidEvent, error) {
	if len(f.errors) == 0 {
		return XidEvent{}, errors.New("the driver is gone")
	}
	x := f.errors[0]
	f.errors = f.errors[1:]
	return XidEvent{UUID: "GPU-1", Xid: x}, nil
}

func (f *fake) Close() error {
	f.closed.Store(true)
	return nil
}

func TestOnce(t *testing.T) {
	t.Setenv(roleVariable, "fine")
	v, s, err := Once(t.Context(), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(theInventory, v); diff != "" {
		t.Errorf("inventory, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Sample{{UUID: "GPU-1", PowerWatts: number(99.)}}, s); diff != "" {
		t.Errorf("samples, -want +got:\n%s", diff)
	}
}

func TestProgramsThatSayNothing(t *testing.T) {
	for role, want := range map[string]string{
		"missing": "no library: the driver's management library is not available here",
		"dies":    "vgpu-nvml ended: exit status 127: symbol lookup error: nvmlInit",
		"garbage": "decode a line: invalid character 'N'",
	} {
		t.Run(role, func(t *testing.T) {
			t.Setenv(roleVariable, role)
			_, _, err := Once(t.Context(), os.Args[0])
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrUnavailable) != (role == "missing") {
				t.Errorf("%v; want %s", err, want)
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		if _, _, err := Once(t.Context(), "/nowhere/vgpu-nvml"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		t.Setenv(roleVariable, "hangs")
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("waited long enough")
		cancel(reason)
		if _, _, err := Once(ctx, os.Args[0]); !errors.Is(err, reason) {
			t.Errorf("%v", err)
		}
	})
}

// TestWatchStartsAgain has the program exit after two errors of a GPU, and checks its messages in
// each run.
func TestWatchStartsAgain(t *testing.T) {
	t.Setenv(roleVariable, "fine")
	var sim clock.Sim
	ctx, cancel := context.WithCancel(t.Context())
	var said []string
	lives, over := 0, make(chan struct{}) // closed at the end of the first
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, Options{Clock: &sim, Log: slog.New(slog.DiscardHandler), Program: os.Args[0], Every: time.Minute}, func(m Message) {
			switch {
			case m.Inventory != nil:
				said = append(said, "inventory "+m.Inventory.Driver)
			case m.Xid != nil:
				said = append(said, fmt.Sprint("xid ", m.Xid.Xid))
			case m.Error != nil:
				said = append(said, "error "+m.Error.Text)
				if lives++; lives == 2 {
					cancel()
				} else {
					close(over)
				}
			}
		})
	}()
	<-over
	sim.AwaitWaiters(1) // Watch pauses
	sim.Advance(firstPause)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	life := []string{"inventory 580.0", "xid 31", "xid 79", "error wait for errors of the GPUs: the driver is gone"}
	if diff := cmp.Diff(append(life, life...), said); diff != "" {
		t.Errorf("what was said, -want +got:\n%s", diff)
	}
}

// TestEndOfAProgramThatHasEnded checks that this is no error: the program's exit closes its input.
func TestEndOfAProgramThatHasEnded(t *testing.T) {
	t.Setenv(roleVariable, "dies")
	cmd := exec.Command(os.Args[0], "--once")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); err == nil {
		t.Error("it did not die")
	}
	over := make(chan error, 1)
	over <- nil
	if err := end(cmd, in, over); err != nil {
		t.Error(err)
	}
}

// TestWatchGivesUpAProgramThatFallsSilent checks this for a program that may be stuck in the
// library.
func TestWatchGivesUpAProgramThatFallsSilent(t *testing.T) {
	t.Setenv(roleVariable, "falls silent")
	var sim clock.Sim
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan Message, 1)
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, Options{Clock: &sim, Log: slog.New(slog.DiscardHandler), Program: os.Args[0]}, func(m Message) { said <- m })
	}()
	if m := <-said; m.Inventory == nil {
		t.Fatalf("%+v", m)
	}
	sim.AwaitWaiters(1)
	sim.Advance(silenceLimit + DefaultEvery)
	if m := <-said; m.Error == nil || m.Error.Text != "vgpu-nvml said nothing for 35s" {
		t.Errorf("%+v", m.Error)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWatchGivesUpWhereThereIsNoLibrary(t *testing.T) {
	t.Setenv(roleVariable, "missing")
	err := Watch(t.Context(), Options{Clock: &clock.Sim{}, Log: slog.New(slog.DiscardHandler), Program: os.Args[0]}, func(Message) {})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestServeEndsWithItsInput checks that no program outlives its parent process.
func TestServeEndsWithItsInput(t *testing.T) {
	l := &quietLibrary{}
	var out strings.Builder
	err := Serve(t.Context(), strings.NewReader(""), &out, time.Hour, func() (Library, error) { return l, nil })
	if err != nil || !l.closed.Load() {
		t.Errorf("%v; the library is closed: %v", err, l.closed.Load())
	}
	if !strings.HasPrefix(out.String(), `{"inventory":{"driver":"580.0"`) {
		t.Errorf("output: %s", out.String())
	}
}

// quietLibrary is a fake without errors.
type quietLibrary struct{ fake }

func (q *quietLibrary) Next(ctx context.Context) (XidEvent, error) {
	<-ctx.Done()
	return XidEvent{}, context.Cause(ctx)
}
