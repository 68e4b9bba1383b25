package qmpconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// qmpPeer is QEMU's end of a monitor.
type qmpPeer struct {
	t    *testing.T
	conn net.Conn
	in   *json.Decoder
}

// pair returns the ends of a connection.
func pair(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "monitor.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = net.Dial("unix", l.Addr().String()); err == nil {
		theirs, err = l.Accept()
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return ours, theirs
}

// connectPeer connects a client to a peer that has completed the handshake.
func connectPeer(t *testing.T, event func(Event)) (*Conn, *qmpPeer) {
	t.Helper()
	ours, theirs := pair(t)
	p := &qmpPeer{t, theirs, json.NewDecoder(theirs)}
	var greeting sync.WaitGroup
	greeting.Go(func() {
		p.send(`{"QMP": {"version": {"qemu": {"major": 11}}, "capabilities": ["oob"]}}`)
		p.receive("qmp_capabilities")
		p.send(`{"return": {}}`)
	})
	m, err := New(t.Context(), ours, event)
	if err != nil {
		t.Fatal(err)
	}
	greeting.Wait()
	t.Cleanup(func() { m.Close() })
	return m, p
}

func (p *qmpPeer) send(format string, args ...any) {
	if _, err := fmt.Fprintf(p.conn, format+"\r\n", args...); err != nil {
		p.t.Error(err)
	}
}

// receive reads a command and compares it with want.
func (p *qmpPeer) receive(want string) {
	var c struct {
		Execute   string
		Arguments json.RawMessage
	}
	if err := p.in.Decode(&c); err != nil {
		p.t.Error(err)
	}
	if got := c.Execute + string(c.Arguments); got != want {
		p.t.Errorf("the command %q, want %q", got, want)
	}
}

func TestMonitor(t *testing.T) {
	var events []Event
	m, p := connectPeer(t, func(e Event) { events = append(events, e) })
	var wg sync.WaitGroup
	wg.Go(func() {
		p.receive(`query-x{"a":[1,2]}`)
		p.send(`{"event": "RESET", "data": {"guest": true, "reason": "x"}}`)
		p.send(`{"return": ["b", 3]}`)
		p.receive("device_del")
		p.send(`{"event": "STOP"}`)
		p.send(`{"error": {"class": "GenericError", "desc": "no such device"}}`)
		p.receive("query-y")
		p.send(`{"return": "text"}`)
		p.conn.Close()
	})
	ctx := t.Context()
	var result []any
	if err := m.Run(ctx, "query-x", map[string]any{"a": []int{1, 2}}, &result); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]any{"b", 3.0}, result); d != "" {
		t.Error("-want +got", d)
	}
	if err := m.Run(ctx, "device_del", nil, nil); err == nil || err.Error() != "no such device" {
		t.Errorf("an error of QEMU's: %v", err)
	}
	if err := m.Run(ctx, "query-y", nil, &result); err == nil || !strings.Contains(err.Error(), "decode the answer") {
		t.Errorf("an answer of another kind: %v", err)
	}
	wg.Wait()
	<-m.Done()
	want := []Event{{Event: "RESET", Data: map[string]any{"guest": true, "reason": "x"}}, {Event: "STOP"}}
	if d := cmp.Diff(want, events); d != "" {
		t.Error("-want +got", d)
	}
}

// If a caller gives up on a command, the next command still gets its own reply.
func TestACommandIsGivenUpOn(t *testing.T) {
	m, p := connectPeer(t, func(Event) {})
	ctx, cancel := context.WithCancel(t.Context())
	givenUp, waited := make(chan error, 1), make(chan error, 1)
	go func() { givenUp <- m.Run(ctx, "slow", nil, nil) }()
	p.receive("slow")
	cancel()
	if err := <-givenUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the one given up on: %v", err)
	}
	var got string
	go func() { waited <- m.Run(t.Context(), "quick", nil, &got) }()
	p.send(`{"return": "a"}`)
	p.receive("quick")
	p.send(`{"return": "b"}`)
	if err := <-waited; err != nil || got != "b" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAMonitorsEndEndsCommands(t *testing.T) {
	for _, last := range []string{"", `{"return": {}`, "]"} {
		m, p := connectPeer(t, func(Event) {})
		waited := make(chan error, 1)
		go func() { waited <- m.Run(t.Context(), "cont", nil, nil) }()
		p.receive("cont")
		if last != "" {
			p.send("%s", last)
		}
		p.conn.Close()
		if err := <-waited; !errors.Is(err, ErrEnded) {
			t.Errorf("%q: %v", last, err)
		}
		<-m.Done()
		if err := m.Run(t.Context(), "cont", nil, nil); err == nil {
			t.Errorf("%q: a command after the monitor's end succeeds", last)
		}
	}
}

// A QEMU that ends before its greeting ends the wait for it.
func TestAQEMUThatDoesNotGreet(t *testing.T) {
	ours, theirs := pair(t)
	theirs.Close()
	if _, err := New(t.Context(), ours, nil); !errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
	ours, _ = pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, ours, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("given up on, and not closed: %v", err)
	}
}

// A QEMU that is killed with commands unread resets the connection. That ends the client although
// no command waits.
func TestAKilledQEMUEndsTheConnection(t *testing.T) {
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(theirs, "{\"QMP\": {}}\r\n")
		if err == nil {
			// The line feed after the command stays unread.
			_, err = io.ReadFull(theirs, make([]byte, len(`{"execute":"qmp_capabilities"}`)))
		}
		if err == nil {
			_, err = fmt.Fprintf(theirs, "{\"return\": {}}\r\n")
		}
		served <- err
	}()
	m, err := New(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	<-m.Done()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Run(t.Context(), "cont", nil, nil); !errors.Is(err, ErrEnded) {
		t.Errorf("a command after the end: %v", err)
	}
}

// An answer is whole, whatever QEMU says next: events follow each answer at once, while it is read.
func TestAnswersAmongEvents(t *testing.T) {
	const commands, events = 40, 20
	text := func(fill byte) string { return strings.Repeat(string(fill), 1000) }
	seen := 0
	m, p := connectPeer(t, func(e Event) {
		if e.Data["x"] != text('!') {
			t.Errorf("event %.20q", e.Data["x"])
		}
		seen++
	})
	var qemu sync.WaitGroup
	qemu.Go(func() {
		for i := range commands {
			p.receive("query-x")
			p.send(`{"return": "%s"}`, text('a'+byte(i%26)))
			for range events {
				p.send(`{"event": "E", "data": {"x": "%s"}}`, text('!'))
			}
		}
	})
	for i := range commands {
		var got string
		if err := m.Run(t.Context(), "query-x", nil, &got); err != nil || got != text('a'+byte(i%26)) {
			t.Fatalf("answer %d: %.20q, %v", i, got, err)
		}
	}
	qemu.Wait()
	p.conn.Close()
	<-m.Done()
	if seen != commands*events {
		t.Errorf("%d events, want %d", seen, commands*events)
	}
}

// A message without end ends the connection, and is not kept.
func TestAMessageIsBounded(t *testing.T) {
	m, p := connectPeer(t, nil)
	chunk := []byte(strings.Repeat(" ", 1<<20))
	for err := error(nil); err == nil; {
		_, err = p.conn.Write(chunk)
	}
	if err := m.Run(t.Context(), "cont", nil, nil); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("%v", err)
	}
}

// FuzzConn has QEMU say anything.
func FuzzConn(f *testing.F) {
	f.Add([]byte(`{"QMP": {}} {"return": {}} {"event": "E", "data": {"x": 1}} {"error": {"class": "C", "desc": "d"}} {"return": 1}`))
	f.Add([]byte(`{"QMP": {}} {"error": {}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(said)
			theirs.Close()
		}()
		m, err := New(t.Context(), ours, func(e Event) {
			if e.Event == "" {
				t.Error("an event without name")
			}
		})
		if err != nil {
			return
		}
		var result any
		_ = m.Run(t.Context(), "query-x", nil, &result)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}
