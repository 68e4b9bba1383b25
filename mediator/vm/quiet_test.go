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

func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	var now clock.Sim
	now.Advance(time.Hour)
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	root := slog.New(Quiet(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}), &now))
	log := root.With("context", 3)
	lines := func() int { defer out.Reset(); return strings.Count(out.String(), "\n") }

	for i := range 1000 {
		// It is one message, whoever says it and at whatever level.
		root.Warn("channel failed", "channel", i)
		log.Error("channel failed", "channel", i)
	}
	if n := lines(); n != sayBurst {
		t.Errorf("%d lines of 2000, want %d", n, sayBurst)
	}
	log.Info("something else")
	if got, want := out.String(), "level=INFO msg=\"something else\" context=3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lines()
	now.Advance(sayEvery)
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
	// However many messages there are, they do not fill memory or the log.
	for i := range 10 * maxSayings {
		log.Info(fmt.Sprint("message ", i))
	}
	if n := lines(); n > maxSayings+sayBurst {
		t.Errorf("%d lines of %d messages", n, 10*maxSayings)
	}
}
