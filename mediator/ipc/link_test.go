package ipc

import (
	"errors"
	"io"
	"net"
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

func newPages(t *testing.T) (a, b *Page) {
	t.Helper()
	a, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(a.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	b, err = OpenPage(os.NewFile(uintptr(fd), "copy"))
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

func TestPageIsShared(t *testing.T) {
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
	want := Counters{Kernels: 1, Errors: 1, CopiedBytes: 7, GPUTime: 7 * time.Millisecond, LateTime: 2 * time.Millisecond}
	if diff := cmp.Diff(want, seen.Counters()); diff != "" {
		t.Errorf("Counters (-want +got):\n%s", diff)
	}
	if !seen.Backlog() || seen.PID() != 42 || seen.State() != ContextReady {
		t.Errorf("backlog %v, pid %d, state %v", seen.Backlog(), seen.PID(), seen.State())
	}

	bill := Bill{Used: time.Second, Suspended: time.Minute, Suspensions: 3, Caused: 7, Charged: time.Millisecond}
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

// TestWorkedTime is the time with commands under way, the newest of it up to when it is
// asked for, and begins anew with an executor.
// What fills memory is on the GPU as launches are, and does not outlast its executor.
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
	serve.SetVerdict(Suspend)
	for _, c := range []struct {
		at   time.Duration
		want Verdict
	}{
		{now, Suspend},
		{now + SuspensionLimit, Suspend},
		{now + SuspensionLimit + 1, Run},
	} {
		if got := exec.Verdict(c.at); got != c.want {
			t.Errorf("verdict %v after the heartbeat = %d, want %d", c.at-now, got, c.want)
		}
	}
	serve.SetVerdict(Run)
	if got := exec.Verdict(now); got != Run {
		t.Errorf("verdict after resume = %d, want Run", got)
	}
}

func TestVerdictWakesSleepers(t *testing.T) {
	serve, exec := newPages(t)
	done := make(chan error)
	slot := exec.Context(0)
	reading := slot.Bell()
	go func() { done <- slot.Sleep(reading, time.Hour) }()
	serve.SetVerdict(Suspend)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// A ring before the sleep is not lost.
	reading = slot.Bell()
	serve.Context(0).Ring()
	if err := slot.Sleep(reading, time.Hour); err != nil {
		t.Fatal(err)
	}
	// And a sleep that nobody ends, ends.
	if err := slot.Sleep(slot.Bell(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

func TestOpenPageRefuses(t *testing.T) {
	for name, prepare := range map[string]func(f *os.File) error{
		"short": func(f *os.File) error { return f.Truncate(PageBytes - 1) },
		"zero":  func(f *os.File) error { return f.Truncate(PageBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.CreateTemp(t.TempDir(), "page")
			if err != nil {
				t.Fatal(err)
			}
			if err := prepare(f); err != nil {
				t.Fatal(err)
			}
			if p, err := OpenPage(f); err == nil {
				t.Errorf("OpenPage took it: %+v", p)
			}
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the file was left open: %v", err)
			}
		})
	}
}

// TestSuspendUntil: where the page is silent the guest is suspended for as long as its file
// says, and is not where a daemon writes to the page.
func TestSuspendUntil(t *testing.T) {
	page, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	path := filepath.Join(t.TempDir(), "until")
	f, err := NewUntil(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{1}); err == nil {
		t.Error("the guest's processes can write to it")
	}
	page.SetUntil(f)
	now := time.Hour
	want := func(what string, want Verdict) {
		t.Helper()
		if got := page.Verdict(now); got != want {
			t.Errorf("%s: verdict %v, want %v", what, got, want)
		}
	}
	want("without a daemon", Run)
	if err := SuspendUntil(path, now+time.Second); err != nil {
		t.Fatal(err)
	}
	now += lookUntilEvery
	want("suspended", Suspend)
	page.Beat(now)
	want("with a daemon that has the page", Run)
	now += time.Second
	want("after its end", Run)
	if err := SuspendUntil(path, now+time.Hour); err != nil {
		t.Fatal(err)
	}
	now += lookUntilEvery
	want("suspended again", Suspend)
	if err := SuspendUntil(path, 0); err != nil {
		t.Fatal(err)
	}
	now += lookUntilEvery
	want("taken back", Run)
}

// TestSuspendUntilWaitsForNobody: a pipe in the file's place is refused, and what is behind
// a link is left alone.
func TestSuspendUntilWaitsForNobody(t *testing.T) {
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
		case <-time.After(10 * time.Second):
			t.Fatal(path, "is waited for")
		}
	}
}

// TestBellOfAnotherMind: who has the page can't keep the daemon asleep by waking it all the
// time without a ring.
func TestBellOfAnotherMind(t *testing.T) {
	page, err := NewPage()
	if err != nil {
		t.Fatal(err)
	}
	done, woken := make(chan error, 1), make(chan struct{})
	go func() { done <- page.SleepBell(page.Bell(), time.Minute) }()
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
				futex.Wake(&page.area.bell.rung)
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
	case <-time.After(20 * time.Second):
		t.Error("it is asleep")
	}
}

// TestOpenPageAsksForSeals: a page that its maker could cut short is not mapped, since
// whoever reads it then is ended.
func TestOpenPageAsksForSeals(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	maker := os.NewFile(uintptr(fd), "unsealed")
	defer maker.Close()
	page, err := NewPage()
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
	if p, err := OpenPage(os.NewFile(uintptr(copied), "unsealed")); err == nil {
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

// pair is two ends of a link, which are closed with the test.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, end, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = FromFile(end); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []*Conn{a, b} {
			if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return a, b
}

func TestReceiveGivesUp(t *testing.T) {
	a, b := pair(t)
	if _, err := a.ReceiveWithin(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came, and ReceiveWithin = %v", err)
	}
	if err := b.Send(Message{Kind: KindReady}); err != nil {
		t.Fatal(err)
	}
	if m, err := a.ReceiveWithin(time.Hour); err != nil || m.Kind != KindReady {
		t.Errorf("ReceiveWithin = %+v, %v", m, err)
	}
	// The other end of one that was shut is told, and need not react.
	if err := a.Shut(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive after the other end was shut = %v, want io.EOF", err)
	}
	if _, err := a.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Receive after Shut = %v, want the deadline", err)
	}
	if err := b.Expire(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Receive after Expire = %v, want the deadline", err)
	}
}

func TestReaderIsNotWaitedForWithoutEnd(t *testing.T) {
	a, _ := pair(t)
	m, err := NewMessage(KindFault, Fault{Text: strings.Repeat("x", MaxMessage/2)})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = a.Send(m)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Send to one who does not read = %v, want the deadline", err)
	}
}

// TestCloseWithUnreadMessages: the kernel resets a connection then.
func TestCloseWithUnreadMessages(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(Message{Kind: KindQuit}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive = %v, want io.EOF", err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	a, b := pair(t)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", "null", "[]", `{"kind":7}`, strings.Repeat(" ", MaxMessage+1)} {
		oob := unix.UnixRights(int(w.Fd()))
		if _, _, err := a.c.WriteMsgUnix([]byte(text), oob, nil); err != nil {
			t.Fatal(err)
		}
		m, err := b.Receive()
		if text == "null" { // is a message without a kind, which its receiver refuses
			if err != nil || m.Kind != "" || len(m.Files) != 1 {
				t.Errorf("null: %+v, %v", m, err)
			}
			if err := m.CloseFiles(); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%.20s: taken as %+v", text, m)
		}
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(left) > len(files) {
		t.Errorf("%d descriptors, before %d: %v", len(left), len(files), err)
	}
}

// BenchmarkRing is what waking a busy executor costs: no system call.
func BenchmarkRing(b *testing.B) {
	p, err := NewPage()
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
		slot.Ring()
	}
}

// BenchmarkVerdict is what an executor's look at its verdict costs.
func BenchmarkVerdict(b *testing.B) {
	p, err := NewPage()
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
		if p.Verdict(now) != Run {
			b.Fatal("suspended")
		}
	}
}
