package qemu

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

	"github.com/digitalocean/go-qemu/qmp"
	"github.com/google/go-cmp/cmp"
)

// qmpPeer is QEMU's end of a monitor.
type qmpPeer struct {
	t    *testing.T
	conn net.Conn
	in   *json.Decoder
}

// connectPeer connects a monitor to a peer that has completed the handshake.
func connectPeer(t *testing.T, event func(qmp.Event)) (*monitor, *qmpPeer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "monitor.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	peers := make(chan *qmpPeer, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(peers)
			return
		}
		p := &qmpPeer{t, conn, json.NewDecoder(conn)}
		p.send(`{"QMP": {"version": {"qemu": {"major": 11}}, "capabilities": ["oob"]}}`)
		p.receive("qmp_capabilities")
		p.send(`{"return": {}}`)
		peers <- p
	}()
	m, err := newMonitor(path, nil, event)
	if err != nil {
		t.Fatal(err)
	}
	p := <-peers
	t.Cleanup(func() {
		p.conn.Close()
		m.close()
	})
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
	var events []qmp.Event
	m, p := connectPeer(t, func(e qmp.Event) { events = append(events, e) })
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
	if err := m.execute(ctx, "query-x", map[string]any{"a": []int{1, 2}}, &result); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]any{"b", 3.0}, result); d != "" {
		t.Error("-want +got", d)
	}
	if err := m.execute(ctx, "device_del", nil, nil); err == nil || err.Error() != "no such device" {
		t.Errorf("an error of QEMU's: %v", err)
	}
	if err := m.execute(ctx, "query-y", nil, &result); err == nil || !strings.Contains(err.Error(), "decode the answer") {
		t.Errorf("an answer of another kind: %v", err)
	}
	wg.Wait()
	<-m.done
	want := []qmp.Event{{Event: "RESET", Data: map[string]any{"guest": true, "reason": "x"}}, {Event: "STOP"}}
	if d := cmp.Diff(want, events); d != "" {
		t.Error("-want +got", d)
	}
}

// If a caller gives up on a command, the next command still gets its own reply.
func TestACommandIsGivenUpOn(t *testing.T) {
	m, p := connectPeer(t, func(qmp.Event) {})
	ctx, cancel := context.WithCancel(t.Context())
	givenUp, waited := make(chan error, 1), make(chan error, 1)
	go func() { givenUp <- m.execute(ctx, "slow", nil, nil) }()
	p.receive("slow")
	cancel()
	if err := <-givenUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the one given up on: %v", err)
	}
	var got string
	go func() { waited <- m.execute(t.Context(), "quick", nil, &got) }()
	p.send(`{"return": "a"}`)
	p.receive("quick")
	p.send(`{"return": "b"}`)
	if err := <-waited; err != nil || got != "b" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAMonitorsEndEndsCommands(t *testing.T) {
	for _, last := range []string{"", `{"return": {}`, "]"} {
		m, p := connectPeer(t, func(qmp.Event) {})
		waited := make(chan error, 1)
		go func() { waited <- m.execute(t.Context(), "cont", nil, nil) }()
		p.receive("cont")
		if last != "" {
			p.send("%s", last)
		}
		p.conn.Close()
		if err := <-waited; !errors.Is(err, errMonitorEnded) {
			t.Errorf("%q: %v", last, err)
		}
		<-m.done
		if err := m.execute(t.Context(), "cont", nil, nil); err == nil {
			t.Errorf("%q: a command after the monitor's end succeeds", last)
		}
	}
}

// A QEMU that ends before its greeting ends the wait for it.
func TestAQEMUThatDoesNotGreet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "monitor.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 1)
	go func() {
		_, err := newMonitor(path, nil, nil)
		errs <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	if err := <-errs; !errors.Is(err, errMonitorEnded) {
		t.Errorf("%v", err)
	}
}

// A QEMU that is killed with commands unread resets the connection. That ends the monitor although
// no command waits.
func TestAKilledQEMUEndsTheMonitor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "monitor.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	var conn net.Conn
	go func() {
		var err error
		if conn, err = l.Accept(); err == nil {
			_, err = fmt.Fprintf(conn, "{\"QMP\": {}}\r\n")
		}
		if err == nil {
			// The line feed after the command stays unread.
			_, err = io.ReadFull(conn, make([]byte, len(`{"execute":"qmp_capabilities"}`)))
		}
		if err == nil {
			_, err = fmt.Fprintf(conn, "{\"return\": {}}\r\n")
		}
		served <- err
	}()
	exited := make(chan struct{})
	m, err := newMonitor(path, exited, func(qmp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	close(exited)
	<-m.done
	if err := m.close(); err != nil {
		t.Error(err)
	}
}
