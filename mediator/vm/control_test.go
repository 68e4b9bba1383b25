package vm

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// newControl returns a guest's side of its connections to daemons and its socket.
func newControl(t *testing.T) (*control, *net.UnixListener) {
	t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := listenControl(filepath.Join(t.TempDir(), ControlSocket))
	if err != nil {
		t.Fatal(err)
	}
	return &control{
		pages: []*ipc.ControlPage{page}, log: slog.New(slog.DiscardHandler), hello: ipc.Hello{Version: "test"},
		clock: &clock.Sim{}, changes: make(chan struct{}, 1),
	}, l
}

// serveControl serves until the test's end.
func serveControl(t *testing.T, c *control, l *net.UnixListener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.close()
	})
}

// TestDaemonConnectsAfterAFailedAccept checks that a failed accept does not end accepting.
func TestDaemonConnectsAfterAFailedAccept(t *testing.T) {
	c, l := newControl(t)
	// An error that passes, as one for want of descriptors does.
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{})
	c.log = slog.New(&errorLog{slog.DiscardHandler, failed})
	serveControl(t, c, l)
	<-failed
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	conn, err := ipc.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if m, err := receive(conn); err != nil || m.Kind != ipc.KindHello {
		t.Errorf("received %v, %v", m.Kind, err)
	}
}

// errorLog is a log that signals the first error.
type errorLog struct {
	slog.Handler
	error chan struct{}
}

func (l *errorLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && l.error != nil {
		close(l.error)
		l.error = nil
	}
	return nil
}
