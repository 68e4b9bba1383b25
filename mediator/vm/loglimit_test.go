package vm

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"vgpud/clock"
)

func TestLimitLog(t *testing.T) {
	var out bytes.Buffer
	var now clock.Sim
	now.Advance(time.Hour)
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	root := slog.New(LimitLog(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}), &now))
	log := root.With("context", 3)
	lines := func() int { defer out.Reset(); return strings.Count(out.String(), "\n") }

	for i := range 1000 {
		// The logger and the level don't matter: it is one message.
		root.Warn("channel failed", "channel", i)
		log.Error("channel failed", "channel", i)
	}
	if n := lines(); n != messageBurst {
		t.Errorf("%d lines of 2000, want %d", n, messageBurst)
	}
	log.Info("something else")
	if got, want := out.String(), "level=INFO msg=\"something else\" context=3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lines()
	now.Advance(messageEvery)
	for range 2 {
		log.Warn("channel failed", "channel", 7)
	}
	if got, want := out.String(), "level=WARN msg=\"channel failed\" context=3 channel=7 more=1990\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lines()
	for range 100 {
		log.Debug("details")
	}
	if n := lines(); n != 100 {
		t.Errorf("%d lines of detail, want 100", n)
	}
	// However many messages there are, they fill neither memory nor the log.
	for i := range 10 * maxMessages {
		log.Info(fmt.Sprint("message ", i))
	}
	if n := lines(); n > maxMessages+messageBurst {
		t.Errorf("%d lines of %d messages", n, 10*maxMessages)
	}
}
