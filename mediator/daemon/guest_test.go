package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// linked returns the daemon's end of a connection to a guest's process, and the descriptor of the
// process's end, which the caller closes.
func linked(t *testing.T) (conn *ipc.Conn, fd int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err = ipc.FromFile(os.NewFile(uintptr(fds[0]), "link"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test's own
	return conn, fds[1]
}

// TestMalformedMessages: some are skipped, and messages after them are handled. A process that
// sends more is killed, since it could not be governed.
func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		messages int
		killed   bool
	}{"some": {maxMalformed, false}, "more": {maxMalformed + 3, true}} {
		t.Run(name, func(t *testing.T) {
			conn, fd := linked(t)
			cmd := exec.Command("sleep", "600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			ended := make(chan error, 1)
			go func() {
				ended <- cmd.Wait()
				// Its sockets close when it ends.
				if err := unix.Close(fd); err != nil {
					t.Error(err)
				}
			}()
			for range c.messages {
				if _, err := unix.Write(fd, []byte("{")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := unix.Write(fd, []byte(`{"kind":"handles"}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fd, []byte(`{"kind":"changed"}`)); err != nil {
				t.Fatal(err)
			}
			received := make(chan ipc.Kind, 2)
			g := &guest{conn: conn, process: cmd.Process}
			left := make(chan bool, 1)
			go func() {
				left <- g.receive(slog.New(slog.DiscardHandler), clock.Real{}, func(m *ipc.Message) { received <- m.Kind })
			}()
			if first, second := <-received, <-received; first != ipc.KindHandles || second != ipc.KindChanged {
				t.Errorf("received %s and %s", first, second)
			}
			if !c.killed {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("it ended with %v", err)
			}
			if !<-left {
				t.Error("it is not known to have ended")
			}
		})
	}
}

// TestFloodOfMessages: a guest's process that sends messages without end is read at a bounded pace.
func TestFloodOfMessages(t *testing.T) {
	conn, fd := linked(t)
	const more = 3
	sent := make(chan error, 1)
	go func() {
		var err error
		for range messageBurst + more {
			if _, err = unix.Write(fd, []byte(`{"kind":"changed"}`)); err != nil {
				break
			}
		}
		sent <- errors.Join(err, unix.Close(fd))
	}()
	var c clock.Sim
	var handled atomic.Int64
	g := &guest{conn: conn}
	left := make(chan bool, 1)
	go func() {
		left <- g.receive(slog.New(slog.DiscardHandler), &c, func(*ipc.Message) { handled.Add(1) })
	}()
	for i := range int64(more + 1) { // its end is read like a message
		select {
		case <-left:
			t.Fatalf("%d messages were handled at once", handled.Load())
		case <-waits(&c):
		}
		if n := handled.Load(); n != messageBurst+i {
			t.Fatalf("%d messages after %d periods, want %d", n, i, messageBurst+i)
		}
		c.Advance(messageEvery)
	}
	if !<-left {
		t.Error("its end is not known")
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// waits returns a channel that is closed once somebody waits on a clock.
func waits(c *clock.Sim) <-chan struct{} {
	w := make(chan struct{})
	go func() {
		defer close(w)
		c.AwaitWaiters(1)
	}()
	return w
}

// counted is a log that counts its records.
type counted struct {
	slog.Handler
	n *int
}

func (counted) Enabled(context.Context, slog.Level) bool { return true }

func (c counted) Handle(context.Context, slog.Record) error {
	*c.n++
	return nil
}

// TestHandlesFillNoLog: a guest's process may send as many messages as it likes that are refused.
func TestHandlesFillNoLog(t *testing.T) {
	n := 0
	s := &Service{log: slog.New(counted{slog.DiscardHandler, &n}), clock: clock.Real{}}
	g := &guest{log: s.guestLog(), presence: presence{device: &device{log: s.log}}}
	for range 10_000 {
		g.handleMessage(&ipc.Message{Kind: ipc.KindHandles, Body: []byte(`{"slot": -1}`)})
	}
	if n == 0 || n > 1000 {
		t.Errorf("%d messages are in the log", n)
	}
}

// TestEndThatIsNotWaitedFor: a daemon that ends does not wait for a guest's process that the kernel keeps.
func TestEndThatIsNotWaitedFor(t *testing.T) {
	s := &Service{quit: make(chan struct{}), processes: map[int]*vmProcess{7: {ended: make(chan struct{})}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.noteEnd(&guest{pid: 7})
	}()
	until(t, "it is waited for", func() bool { return waitsIn("noteEnd", "") })
	close(s.quit)
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Error("it is waited for")
	}
}
