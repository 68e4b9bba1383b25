package ipc

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/internal/futex"
)

func newPages(t *testing.T) (a, b *ControlPage) {
	t.Helper()
	a, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(a.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	b, err = OpenControlPage(os.NewFile(uintptr(fd), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

func TestControlPageIsShared(t *testing.T) {
	serve, exec := newPages(t)
	slot := exec.Context(3)
	slot.Reset(42)
	slot.SetReady(0) // group 0 is a group, not none
	slot.AddFetched()
	slot.AddFetched()
	slot.AddFinished(5*time.Millisecond, 0, false)
	slot.AddFinished(2*time.Millisecond, 2*time.Millisecond, true)
	slot.AddFetched()
	slot.SetBacklog(true)
	slot.AddCopied(7)

	seen := serve.Context(3)
	if g, ok := seen.Group(); g != 0 || !ok {
		t.Errorf("Group = %d, %v, want 0, true", g, ok)
	}
	if got := seen.Outstanding(); got != 1 {
		t.Errorf("Outstanding = %d, want 1", got)
	}
	want := Counters{Kernels: 1, Errors: 1, ErrorsBy: [ErrorReasons]uint64{ErrorOther: 1}, CopiedBytes: 7, GPUTime: 7 * time.Millisecond, LateTime: 2 * time.Millisecond}
	if diff := cmp.Diff(want, seen.Counters()); diff != "" {
		t.Errorf("Counters (-want +got):\n%s", diff)
	}
	if !seen.Backlog() || seen.PID() != 42 || seen.State() != ContextReady {
		t.Errorf("backlog %v, pid %d, state %v", seen.Backlog(), seen.PID(), seen.State())
	}

	bill := Bill{Used: time.Second, Suspended: time.Minute, Executed: time.Hour, Suspensions: 3, Caused: 7, Charged: time.Millisecond}
	serve.SetBill(bill)
	if diff := cmp.Diff(bill, exec.Bill()); diff != "" {
		t.Errorf("Bill (-want +got):\n%s", diff)
	}

	terms := Terms{Weight: 2.5, Cap: 0.1, Guarantee: 1. / 3, PriorityCeiling: 15}
	serve.SetTerms(terms)
	if diff := cmp.Diff(terms, exec.Terms(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("Terms (-want +got):\n%s", diff)
	}
	if got := exec.Terms().Cap; got != 0.1 {
		t.Errorf("a cap of 0.1 comes back as %v", got)
	}

	slot.Free()
	if _, ok := seen.Group(); ok || seen.Outstanding() != 0 || seen.Counters().Kernels != 1 {
		t.Errorf("a freed slot has a group, outstanding work, or lost its sums: %+v", seen.Counters())
	}
}

// TestFilling: a fill is on the GPU like a launch, and ends with its executor.
func TestFilling(t *testing.T) {
	writer, reader := newPages(t)
	c, seen := writer.Context(2), reader.Context(2)
	want := func(when string, want bool) {
		t.Helper()
		if got := seen.OnGPU(); got != want {
			t.Errorf("%s: on the GPU is %v, want %v", when, got, want)
		}
	}
	want("at first", false)
	c.SetFilling(true)
	want("while it fills", true)
	c.AddFetched()
	c.SetFilling(false)
	want("with a launch", true)
	c.AddFinished(3, 1, false)
	want("when that has ended", false)
	c.SetFilling(true)
	c.Free()
	want("when its executor has ended", false)
	c.SetFilling(true)
	c.Reset(1)
	want("with a new executor", false)
	c.AddFilled(5, 2)
	if got, want := seen.Counters(), (Counters{Kernels: 1, GPUTime: 8, LateTime: 3}); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
}

func TestWorkedTime(t *testing.T) {
	writer, reader := newPages(t)
	c := writer.Context(2)
	want := func(at, want time.Duration) {
		t.Helper()
		if got := reader.Context(2).Worked(at); got != want {
			t.Errorf("at %v it had worked for %v, want %v", at, got, want)
		}
	}
	want(5, 0)
	c.SetWorking(true, 0)
	want(5, 5)
	c.SetWorking(true, 7) // already
	c.SetWorking(false, 10)
	want(50, 10)
	c.SetWorking(false, 60) // already
	c.SetWorking(true, 100)
	want(100, 10)
	want(130, 40)
	c.Reset(1)
	want(200, 0)
}

func TestSuspensionEndsWithoutHeartbeat(t *testing.T) {
	serve, exec := newPages(t)
	const now = 100 * time.Second
	serve.Beat(now)
	serve.SetSuspendWord(Suspend)
	for _, c := range []struct {
		at   time.Duration
		want SuspendWord
	}{
		{now, Suspend},
		{now + SuspensionLimit, Suspend},
		{now + SuspensionLimit + 1, Run},
	} {
		if got := exec.SuspendWord(c.at); got != c.want {
			t.Errorf("verdict %v after the heartbeat = %d, want %d", c.at-now, got, c.want)
		}
	}
	serve.SetSuspendWord(Run)
	if got := exec.SuspendWord(now); got != Run {
		t.Errorf("verdict after resume = %d, want Run", got)
	}
}

func TestSuspendWordWakesSleepers(t *testing.T) {
	serve, exec := newPages(t)
	done := make(chan error)
	slot := exec.Context(0)
	reading := slot.Futex()
	go func() { done <- slot.Sleep(reading, time.Hour) }()
	serve.SetSuspendWord(Suspend)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// A wake-up before the sleep is not lost.
	reading = slot.Futex()
	serve.Context(0).Wake()
	if err := slot.Sleep(reading, time.Hour); err != nil {
		t.Fatal(err)
	}
	// A sleep without a wake-up ends.
	if err := slot.Sleep(slot.Futex(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

func TestOpenControlPageRefuses(t *testing.T) {
	for name, prepare := range map[string]func(f *os.File) error{
		"short": func(f *os.File) error { return f.Truncate(ControlPageBytes - 1) },
		"zero":  func(f *os.File) error { return f.Truncate(ControlPageBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.CreateTemp(t.TempDir(), "page")
			if err != nil {
				t.Fatal(err)
			}
			if err := prepare(f); err != nil {
				t.Fatal(err)
			}
			if p, err := OpenControlPage(f); err == nil {
				t.Errorf("OpenPage took it: %+v", p)
			}
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the file was left open: %v", err)
			}
		})
	}
}

// TestSuspendUntil: the file suspends the guest while the page is silent, and not while a daemon
// writes to the page.
func TestSuspendUntil(t *testing.T) {
	page, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	path := filepath.Join(t.TempDir(), "until")
	f, err := NewSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{1}); err == nil {
		t.Error("the guest's processes can write to it")
	}
	page.SetSuspensionFile(f)
	now := time.Hour
	want := func(what string, want SuspendWord) {
		t.Helper()
		if got := page.SuspendWord(now); got != want {
			t.Errorf("%s: verdict %v, want %v", what, got, want)
		}
	}
	want("without a daemon", Run)
	if err := SuspendUntil(path, now+time.Second); err != nil {
		t.Fatal(err)
	}
	now += suspensionReadInterval
	want("suspended", Suspend)
	page.Beat(now)
	want("with a daemon that has the page", Run)
	now += time.Second
	want("after its end", Run)
	if err := SuspendUntil(path, now+time.Hour); err != nil {
		t.Fatal(err)
	}
	now += suspensionReadInterval
	want("suspended again", Suspend)
	if err := SuspendUntil(path, 0); err != nil {
		t.Fatal(err)
	}
	now += suspensionReadInterval
	want("taken back", Run)
}

// TestSlowDaemon: a suspension outlasts the heartbeat by SuspensionLimit if the daemon is gone, and
// by HungLimit if its process lives. So does one of a guest that the daemon has not met.
func TestSlowDaemon(t *testing.T) {
	daemon, exec := newPages(t)
	path := filepath.Join(t.TempDir(), "until")
	f, err := NewSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	exec.SetSuspensionFile(f)
	const beat = time.Hour
	daemon.Beat(beat)
	want := func(what string, after time.Duration, want SuspendWord) {
		t.Helper()
		// The file is read anew.
		exec.suspension.next.Store(0)
		if got := exec.SuspendWord(beat + after); got != want {
			t.Errorf("%s: verdict %v after %v, want %v", what, got, after, want)
		}
		exec.suspension.next.Store(0)
		if got, want := exec.SuspensionExpired(beat+after), after > SuspensionLimit && want == Run; got != want {
			t.Errorf("%s: expired after %v: %v, want %v", what, after, got, want)
		}
	}
	daemon.SetSuspendWord(Suspend)
	want("no daemon", SuspensionLimit, Suspend)
	want("no daemon", SuspensionLimit+1, Run)
	lock, err := LockSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want("a slow daemon", SuspensionLimit+1, Suspend)
	want("a slow daemon", HungLimit, Suspend)
	want("a daemon that hangs", HungLimit+1, Run)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	want("a daemon that has ended", SuspensionLimit+1, Run)

	daemon.SetSuspendWord(Run)
	if err := SuspendUntil(path, beat+SuspensionLimit); err != nil {
		t.Fatal(err)
	}
	want("no daemon, not met", SuspensionLimit-1, Suspend)
	want("no daemon, not met", SuspensionLimit, Run)
	if lock, err = LockSuspensionFile(path); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	want("a slow daemon, not met", HungLimit-1, Suspend)
	want("a daemon that hangs, not met", HungLimit+1, Run)
	if err := SuspendUntil(path, 0); err != nil {
		t.Fatal(err)
	}
	want("taken back", SuspensionLimit, Run)
}

// TestTurnsExpire: launches wait for a daemon that is late, for one that hangs no longer than LateLimit,
// and for one that is gone no longer than SilenceLimit.
func TestTurnsExpire(t *testing.T) {
	daemon, exec := newPages(t)
	path := filepath.Join(t.TempDir(), "until")
	f, err := NewSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	exec.SetSuspensionFile(f)
	const beat = time.Hour
	daemon.Beat(beat)
	want := func(what string, after time.Duration, want bool) {
		t.Helper()
		exec.suspension.next.Store(0) // what the file says is read anew
		if got := exec.TurnsExpired(beat + after); got != want {
			t.Errorf("%s: expired after %v: %v, want %v", what, after, got, want)
		}
	}
	want("no daemon", SilenceLimit, false)
	want("no daemon", SilenceLimit+1, true)
	lock, err := LockSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want("a late daemon", SilenceLimit+1, false)
	want("a late daemon", LateLimit, false)
	want("a daemon that hangs", LateLimit+1, true)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	want("a daemon that has ended", SilenceLimit+1, true)
}

// TestLockSuspensionFile: a lock of a guest's process that was taken over keeps no daemon from
// having one, and the guest's process can't have one that does.
func TestLockSuspensionFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "until")
	f, err := NewSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for kind, want := range map[int16]error{unix.F_WRLCK: unix.EBADF, unix.F_RDLCK: nil} {
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind}); !errors.Is(err, want) {
			t.Errorf("a guest's lock of kind %d: %v, want %v", kind, err, want)
		}
	}
	lock, err := LockSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

// TestSuspendUntilDoesNotBlock: a pipe in the file's place is refused, and a symbolic link is not
// followed.
func TestSuspendUntilDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	pipe, target, linked := filepath.Join(dir, "pipe"), filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(target, nil, 0o600), os.Symlink(target, linked)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, linked} {
		done := make(chan error, 1)
		go func() { done <- SuspendUntil(path, time.Hour) }()
		select {
		case err := <-done:
			if err == nil {
				t.Error(path, "was written to")
			}
		case <-time.After(2 * time.Minute):
			t.Fatal(path, "is waited for")
		}
	}
}

// TestWakeWithoutAChange: a process that wakes the daemon all the time without a change can't keep
// it from returning.
func TestWakeWithoutAChange(t *testing.T) {
	page, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	done, woken := make(chan error, 1), make(chan struct{})
	go func() { done <- page.DaemonSleep(page.DaemonFutex(), time.Minute) }()
	go func() {
		defer close(woken)
		for {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				return
			case <-time.After(time.Millisecond):
				futex.Wake(&page.launches.futex.changes)
			case <-t.Context().Done():
				return
			}
		}
	}()
	select {
	case <-woken:
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it is asleep")
	}
}

// TestOpenControlPageChecksSeals: a page whose file could shrink is not mapped, since reading it
// would then end the process.
func TestOpenControlPageChecksSeals(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	maker := os.NewFile(uintptr(fd), "unsealed")
	defer maker.Close()
	page, err := NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	if _, err := maker.Write(page.mem); err != nil {
		t.Fatal(err)
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := OpenControlPage(os.NewFile(uintptr(copied), "unsealed")); err == nil {
		t.Errorf("OpenPage took it: %v", p.Close())
	}
}

func TestConnCarriesFiles(t *testing.T) {
	a, end, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, err := FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMessage(KindOpen, Channel{Index: 2, Vector: 5}, w)
	if err != nil {
		t.Fatal(err)
	}
	m.ID = 9
	if err := a.Send(m); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := b.Receive()
	if err != nil {
		t.Fatal(err)
	}
	var ch Channel
	if err := got.Decode(&ch); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Channel{Index: 2, Vector: 5}, ch); diff != "" || got.ID != 9 || got.Kind != KindOpen || len(got.Files) != 1 {
		t.Fatalf("got %+v with %d files (-want +got):\n%s", got, len(got.Files), diff)
	}
	if _, err := got.Files[0].WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if err := got.CloseFiles(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r) // ends: both write ends are closed
	if err != nil || string(text) != "hello" {
		t.Errorf("read %q, %v", text, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive after close = %v, want io.EOF", err)
	}
	if err := errors.Join(b.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}

func TestConnRefusesTooMuch(t *testing.T) {
	a, end, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), end.Close()); err != nil {
			t.Error(err)
		}
	})
	m, err := NewMessage(KindFault, Fault{Text: strings.Repeat("x", MaxMessage)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Send(m); err == nil {
		t.Error("a message over the limit was sent")
	}
}

// BenchmarkWake wakes a busy executor, which takes no system call.
func BenchmarkWake(b *testing.B) {
	p, err := NewControlPage()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	}()
	slot := p.Context(0)
	b.ReportAllocs()
	for b.Loop() {
		slot.Wake()
	}
}

// BenchmarkSuspendWord reads the suspend word.
func BenchmarkSuspendWord(b *testing.B) {
	p, err := NewControlPage()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	}()
	now := clock.Real{}.Now()
	p.Beat(now)
	b.ReportAllocs()
	for b.Loop() {
		if p.SuspendWord(now) != Run {
			b.Fatal("suspended")
		}
	}
}
