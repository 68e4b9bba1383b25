package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/cmd/internal/output"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
)

// fixedEvents returns events of the past, and one that is never old. A guest has chosen some of
// their texts.
func fixedEvents() *events.Ring {
	ring := events.NewRing(16, time.UnixMilli(1700000000123))
	h := events.NewHandler(slog.DiscardHandler, ring)
	add := func(at time.Time, level slog.Level, message string, attrs ...any) {
		r := slog.NewRecord(at, level, message, 0)
		r.Add(attrs...)
		if err := h.Handle(context.Background(), r); err != nil {
			panic(err)
		}
	}
	at := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	add(at, slog.LevelInfo, "the daemon starts", events.Kind(events.DaemonStarted))
	add(at.Add(time.Minute), slog.LevelInfo, "guest created", events.Kind(events.GuestCreated), "guest", "web1", "gpu", "gpu0", "domain", "web-one", "weight", 2, "cap", 0.75, "by", "user root (uid 0, pid 1)")
	add(at.Add(2*time.Minute), slog.LevelInfo, "settings changed", events.Kind(events.SettingsChanged), "guest", "web1", "weight", 3, "cap", 0, "by", "user root (uid 0, pid 1)")
	add(at.Add(time.Hour), slog.LevelWarn, "read a domain\x1b[31m", events.Kind(events.DomainProblem), "domain", "evil\nid: 7\u202e")
	add(time.Date(2126, 11, 1, 8, 0, 0, 0, time.UTC), slog.LevelError, "GPU failed", events.Kind(events.GPUFailed), "gpu", "gpu0")
	return ring
}

// TestEventNamesAreEscaped: what a terminal would take as a command is escaped, also if the daemon
// did not do that.
func TestEventNamesAreEscaped(t *testing.T) {
	e := events.Event{ID: "1-0", Kind: "k\x1b[2J", VM: "a\nb", Domain: "\u202ed", By: "\x9b", Message: "m\x1b]0;x\x07", Details: map[string]string{"z": "1", "a\r": "\x00"}}
	for _, kind := range []string{"table", "wide"} {
		var out strings.Builder
		if err := eventTable.print(&out, &output.Format{Kind: kind, NoHeaders: true}, []events.Event{e}); err != nil {
			t.Fatal(err)
		}
		line, ok := strings.CutSuffix(out.String(), "\n")
		if want := output.Printable(line); !ok || line != want {
			t.Errorf("-o %s printed %q", kind, out.String())
		}
		for _, want := range []string{`k\x1b[2J`, `a\nb`, `m\x1b]0;x\a`} {
			if !strings.Contains(line, want) {
				t.Errorf("-o %s: %q has no %s", kind, line, want)
			}
		}
		if details := `a\r=\x00 z=1`; strings.HasSuffix(line, details) != (kind == "wide") {
			t.Errorf("-o %s: %q", kind, line)
		}
	}
}

// TestEventsAreFollowedAfterALostConnection: each event is printed once, in order, whatever happens
// to the connection in between.
func TestEventsAreFollowedAfterALostConnection(t *testing.T) {
	ring := events.NewRing(16, time.UnixMilli(1))
	log := slog.New(events.NewHandler(slog.DiscardHandler, ring))
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(api.Handler(newFixedHost(), api.HandlerOptions{Caller: access.As(access.Viewer), Events: ring, Log: slog.New(slog.DiscardHandler)}))
	s.Listener = l
	s.Start()
	defer s.Close()

	log.Info("one", events.Kind(events.GuestCreated), "guest", "a")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	complaints := make(chan string)
	root := newRoot()
	root.SetArgs([]string{"events", "-f", "-o", "json", "--vm", "a", "--socket", path})
	root.SetOut(w)
	root.SetErr(writerFunc(func(b []byte) { complaints <- string(b) }))
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	d := json.NewDecoder(bufio.NewReader(r))
	want := func(message string) {
		t.Helper()
		var e events.Event
		if err := d.Decode(&e); err != nil || e.Message != message {
			t.Fatalf("followed %+v, %v, want %s", e, err, message)
		}
	}
	want("one")
	log.Info("other", events.Kind(events.GuestCreated), "guest", "b")
	log.Info("two", events.Kind(events.GuestLeft), "guest", "a")
	want("two") // by the stream, which is open now
	s.CloseClientConnections()
	if text := <-complaints; !strings.HasPrefix(text, "no connection to the daemon, connecting again: ") {
		t.Errorf("said %q", text)
	}
	log.Info("three", events.Kind(events.GuestLeft), "guest", "a")
	want("three")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestFollowIsRefused: a refusal is an error at once.
func TestFollowIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "" {
			io.WriteString(w, "[]")
			return
		}
		http.Error(w, `{"error": "not you"}`, http.StatusForbidden)
	}))
	s.Listener = l
	s.Start()
	defer s.Close()
	root := newRoot()
	root.SetArgs([]string{"events", "-f", "--socket", path})
	root.SetOut(io.Discard)
	root.SilenceUsage, root.SilenceErrors = true, true
	if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != "not you" {
		t.Errorf("ended with %v", err)
	}
}

// TestChosenEvents tries --since, --kind and --vm.
func TestChosenEvents(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	e := events.Event{Time: now.Add(-time.Hour), Kind: events.GuestLeft, VM: "a", Domain: "d"}
	got := make(map[string]bool)
	for name, try := range map[string]struct {
		since string
		c     eventChoice
	}{
		"all": {}, "an hour": {since: "1h"}, "less": {since: "59m"}, "a time": {since: "2026-11-24T11:00"},
		"kind": {c: eventChoice{kinds: []string{events.GuestLost, events.GuestLeft}}}, "another": {c: eventChoice{kinds: []string{events.GuestLost}}},
		"guest": {c: eventChoice{vm: "a"}}, "domain": {c: eventChoice{vm: "d"}}, "neither": {c: eventChoice{vm: "b"}},
	} {
		if err := try.c.setSince(try.since, now); err != nil {
			t.Fatal(err)
		}
		got[name] = try.c.has(&e)
	}
	want := map[string]bool{"all": true, "an hour": true, "less": false, "a time": true, "kind": true, "another": false, "guest": true, "domain": true, "neither": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
