package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// TestMalformedMessages: some are skipped, and messages after them are handled. A process that
// sends more is killed, since it could not be governed.
func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		messages int
		killed   bool
	}{"some": {maxMalformed, false}, "more": {maxMalformed + 3, true}} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := ipc.FromFile(os.NewFile(uintptr(fds[0]), "link"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cmd := exec.Command("sleep", "600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			ended := make(chan error, 1)
			go func() {
				ended <- cmd.Wait()
				// Its sockets close when it ends.
				if err := unix.Close(fds[1]); err != nil {
					t.Error(err)
				}
			}()
			for range c.messages {
				if _, err := unix.Write(fds[1], []byte("{")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := unix.Write(fds[1], []byte(`{"kind":"handles"}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fds[1], []byte(`{"kind":"changed"}`)); err != nil {
				t.Fatal(err)
			}
			received := make(chan ipc.Kind, 2)
			g := &guest{conn: conn, process: cmd.Process}
			left := make(chan bool, 1)
			go func() { left <- g.receive(slog.New(slog.DiscardHandler), func(m *ipc.Message) { received <- m.Kind }) }()
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
