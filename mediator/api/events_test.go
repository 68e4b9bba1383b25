package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/mediator/access"
	"vgpud/mediator/audit"
	"vgpud/mediator/events"
)

// eventServer serves a ring, to which its log adds.
func eventServer(t *testing.T, size int) (*Client, *slog.Logger, string) {
	t.Helper()
	ring := events.NewRing(size, time.UnixMilli(1))
	o := testOptions(access.Viewer)
	o.Events = ring
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: Handler(&host{}, o), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return c, slog.New(events.NewHandler(slog.DiscardHandler, ring)), path
}

var errEnough = errors.New("enough")

// take follows events until it has n.
func take(t *testing.T, c *Client, since string, n int) (all []events.Event, missed string) {
	t.Helper()
	err := c.FollowEvents(t.Context(), since, func(e events.Event) error {
		if all = append(all, e); len(all) == n {
			return errEnough
		}
		return nil
	}, func(reason string) { missed = reason })
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return all, missed
}

func texts(all []events.Event) (lines []string) {
	for _, e := range all {
		lines = append(lines, e.ID+" "+e.Kind+" "+e.Message)
	}
	return lines
}

// TestEvents: a list has the events that are kept, and a stream goes on; a reader that comes back
// gets what it has not had, and is told of what is gone.
func TestEvents(t *testing.T) {
	c, log, _ := eventServer(t, 3)
	if all, err := c.Events(t.Context(), ""); err != nil || len(all) != 0 {
		t.Fatalf("at first: %v, %v", all, err)
	}
	log.Info("one", events.Kind(events.GuestCreated))
	log.Info("two", events.Kind(events.GuestLeft))
	all, err := c.Events(t.Context(), "1-0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1-1 guest-left two"}, texts(all)); diff != "" {
		t.Error(diff)
	}
	more := make(chan []events.Event)
	go func() {
		all, _ := take(t, c, "", 3)
		more <- all
	}()
	log.Info("three", events.Kind(events.GuestLeft))
	if diff := cmp.Diff([]string{"1-0 guest-created one", "1-1 guest-left two", "1-2 guest-left three"}, texts(<-more)); diff != "" {
		t.Error(diff)
	}
	log.Info("four", events.Kind(events.GuestLeft))
	log.Info("five", events.Kind(events.GuestLeft))
	again, missed := take(t, c, "1-0", 3)
	if diff := cmp.Diff([]string{"1-2 guest-left three", "1-3 guest-left four", "1-4 guest-left five"}, texts(again)); diff != "" || missed != "1 events are no longer kept" {
		t.Errorf("%q, %s", missed, diff)
	}
	if _, missed = take(t, c, "0-7", 1); missed != "the daemon has started anew since event 0-7" {
		t.Errorf("missed %q", missed)
	}
}

// TestNamesInjectNoEvents: whatever an event's texts hold, a message of the stream is three lines.
func TestNamesInjectNoEvents(t *testing.T) {
	c, log, path := eventServer(t, 3)
	const name = "a\n\nid: 1-9\nevent: guest-left\ndata: {\"vm\": \"b\"}\r\n\u2028<script>"
	log.Info("guest created", events.Kind(events.GuestCreated), "guest", name, "domain", name, name, name)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/events HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n")
	r := bufio.NewReader(conn)
	for line := ""; line != ": vgpud\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"\n", "id: 1-0\n", "event: guest-created\n", "data: ", "\n"}
	for i, prefix := range want {
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, prefix) || prefix != "data: " && line != prefix {
			t.Errorf("line %d is %q, %v, want %q", i, line, err, prefix)
		}
	}
	all, err := c.Events(t.Context(), "")
	if err != nil || len(all) != 1 || strings.ContainsAny(all[0].VM+all[0].Domain, "\n\r\u2028") {
		t.Errorf("%q, %v", all, err)
	}
}

// TestSlowReadersAreDropped: a reader that takes nothing is dropped.
func TestSlowReadersAreDropped(t *testing.T) {
	defer func(d time.Duration) { streamWriteLimit = d }(streamWriteLimit)
	streamWriteLimit = 50 * time.Millisecond
	_, log, path := eventServer(t, 1024)
	slow, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "GET /v1/events HTTP/1.1\r\nHost: vgpud\r\nAccept: text/event-stream\r\n\r\n")
	text := strings.Repeat("x", 900)
	for range 1024 { // about a megabyte, more than the socket takes
		log.Info(text, events.Kind(events.GuestLeft))
	}
	raw, err := slow.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Wait for the server to close the connection, while what was sent before is still unread.
	cerr := raw.Control(func(fd uintptr) {
		hangUp := []unix.PollFd{{Fd: int32(fd)}}
		for hangUp[0].Revents&unix.POLLHUP == 0 && err == nil {
			if _, err = unix.Poll(hangUp, -1); errors.Is(err, unix.EINTR) {
				err = nil
			}
		}
	})
	if err := errors.Join(cerr, err); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, slow)
	if err != nil {
		t.Fatal(err)
	}
	if n >= 1024*900 {
		t.Errorf("the slow reader has got all of %d bytes", n)
	}
}

// TestStreamsAreBounded: viewers can't take all streams, and one viewer can't take all of theirs.
func TestStreamsAreBounded(t *testing.T) {
	var s streams
	var ends []func()
	open := func(c access.Caller, times int) error {
		for range times {
			end, err := s.begin(c)
			if err != nil {
				return err
			}
			ends = append(ends, end)
		}
		return nil
	}
	viewer := func(uid uint32, pid int) access.Caller {
		return access.Caller{Role: access.Viewer, Process: &access.Process{UID: uid, PID: pid}}
	}
	for uid := range uint32(maxViewerStreams / maxStreamsEach) {
		if err := open(viewer(uid, 1), maxStreamsEach); err != nil {
			t.Fatal(err)
		}
		if uid > 0 {
			continue
		}
		if err := open(viewer(uid, 2), 1); !errors.Is(err, ErrBusy) {
			t.Errorf("another of the same viewer's: %v", err)
		}
	}
	if err := open(viewer(1000, 1), 1); !errors.Is(err, ErrBusy) {
		t.Errorf("another viewer: %v", err)
	}
	operator := access.Caller{Role: access.Operator, Process: &access.Process{}}
	if err := open(operator, maxStreams-maxViewerStreams); err != nil {
		t.Fatal(err)
	}
	if err := open(operator, 1); !errors.Is(err, ErrBusy) {
		t.Errorf("another operator: %v", err)
	}
	ends[0]()
	if err := open(operator, 1); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	for _, end := range ends[1:] {
		end()
	}
	if s.open != 0 || len(s.viewers) != 0 {
		t.Errorf("after all ended: %d, %v", s.open, s.viewers)
	}
}

// TestChangesAreRecorded: each request for a change has a record, whatever its result, and reading has
// none.
func TestChangesAreRecorded(t *testing.T) {
	var got []audit.Record
	h := &host{vms: map[string]VM{"a": {Name: "a", Weight: 1}}}
	ask := func(role access.Role, method, path, body string) {
		o := testOptions(role)
		o.Audit = func(r audit.Record) { got = append(got, r) }
		Handler(h, o).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body)))
	}
	ask(access.Operator, "PATCH", "/v1/vms/a", "{\"weight\":\n 2}")
	ask(access.Operator, "PATCH", "/v1/vms/a", `{"weight": 0}`)
	ask(access.Operator, "DELETE", "/v1/vms/nobody?force=true", "")
	ask(access.Viewer, "DELETE", "/v1/vms/a", "")
	ask(access.Operator, "GET", "/v1/vms/a", "")
	ask(access.None, "GET", "/v1/vms", "")
	var lines []string
	for _, r := range got {
		if r.Time.IsZero() {
			t.Errorf("%+v has no time", r)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %d %t", r.Role, r.Method, r.Path, r.Arguments, r.Status, r.Error != ""))
	}
	want := []string{
		`operator PATCH /v1/vms/a {"weight":2} 200 false`, `operator PATCH /v1/vms/a {"weight":0} 400 true`,
		`operator DELETE /v1/vms/nobody?force=true  404 true`, `viewer DELETE /v1/vms/a  403 true`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
