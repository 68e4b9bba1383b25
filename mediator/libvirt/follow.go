package libvirt

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vgpud/clock"
)

// Follow's pause before it connects again doubles each time.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Source is a connection for Follow: a [Conn].
type Source interface {
	Domain(ctx context.Context, key string, v View) (Domain, error)
	Next(ctx context.Context) (Event, error)
	Close() error
}

// Follower handles what happens to domains.
type Follower interface {
	// Connected is called after each connection, before its events: anything may have happened
	// before.
	Connected(ctx context.Context, s Source)
	Changed(ctx context.Context, s Source, e Event)
}

// Follow connects by open and passes events to f, until ctx ends. When the connection ends it
// connects again, with longer and longer pauses while that fails. If libvirt is not available at
// all it returns [ErrUnavailable].
func Follow(ctx context.Context, c clock.Clock, log *slog.Logger, open func(context.Context) (Source, error), f Follower) error {
	pause := firstPause
	logged := false // an outage is one line in the log
	for ctx.Err() == nil {
		connected, err := follow(ctx, log, open, f)
		switch {
		case ctx.Err() != nil:
			return nil
		case !connected && errors.Is(err, ErrUnavailable):
			return err
		case connected:
			pause, logged = firstPause, false
			log.Warn("libvirt's events ended", "err", err)
		case !logged:
			logged = true
			log.Warn("libvirt can't be followed; trying again", "err", err)
		}
		if clock.Sleep(ctx, c, pause) != nil {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
	return nil
}

// follow is Follow for one connection.
func follow(ctx context.Context, log *slog.Logger, open func(context.Context) (Source, error), f Follower) (connected bool, err error) {
	s, err := open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	log.Info("following libvirt's domains")
	f.Connected(ctx, s)
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return true, err
		}
		f.Changed(ctx, s, e)
	}
}
