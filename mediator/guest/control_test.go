package guest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vgpud/mediator/link"
)

// TestDaemonComesAfterAFailedAccept: where a daemon could not be accepted, the next one can.
func TestDaemonComesAfterAFailedAccept(t *testing.T) {
	page, err := link.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), ControlSocket)
	l, err := listenControl(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &control{page: page, log: slog.New(slog.DiscardHandler), hello: link.Hello{PID: os.Getpid()}}
	// An error that passes, as one for want of descriptors does.
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed, done := make(chan struct{}), make(chan struct{})
	c.log = slog.New(&told{slog.DiscardHandler, failed})
	go func() {
		defer close(done)
		c.serve(ctx, l)
	}()
	defer func() {
		cancel()
		<-done
		c.close()
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	}()
	<-failed
	if err := l.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	conn, err := link.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if m, err := conn.ReceiveWithin(time.Minute); err != nil || m.Kind != link.KindHello {
		t.Errorf("heard %v, %v", m.Kind, err)
	}
}

// told is a log of which the first error is told.
type told struct {
	slog.Handler
	error chan struct{}
}

func (l *told) Enabled(context.Context, slog.Level) bool { return true }

func (l *told) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && l.error != nil {
		close(l.error)
		l.error = nil
	}
	return nil
}
