package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// qmpPeer is a QEMU's end of a monitor, played by a test.
type qmpPeer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newPeer(t *testing.T, event func(Event)) (*monitor, *qmpPeer) {
	t.Helper()
	ours, theirs := net.Pipe()
	m := newMonitor(ours, event)
	t.Cleanup(func() {
		theirs.Close()
		m.close()
	})
	return m, &qmpPeer{t, theirs, bufio.NewReader(theirs)}
}

func (p *qmpPeer) say(format string, args ...any) {
	if _, err := fmt.Fprintf(p.conn, format+"\r\n", args...); err != nil {
		p.t.Error(err)
	}
}

// hear reads a command and returns its number.
func (p *qmpPeer) hear(want string) (id uint64) {
	var c struct {
		Execute   string
		Arguments json.RawMessage
		ID        uint64
	}
	if err := json.NewDecoder(p.in).Decode(&c); err != nil {
		p.t.Error(err)
	}
	if got := c.Execute + string(c.Arguments); got != want {
		p.t.Errorf("the command %q, want %q", got, want)
	}
	return c.ID
}

func TestMonitor(t *testing.T) {
	var events []Event
	m, p := newPeer(t, func(e Event) { events = append(events, e) })
	var wg sync.WaitGroup
	wg.Go(func() {
		p.say(`{"QMP": {"version": {"qemu": {"major": 11}}, "capabilities": ["oob"]}}`)
		p.say(`{"return": {}, "id": %d}`, p.hear("qmp_capabilities"))
		p.say(`{"event": "RESET", "data": {"guest": true, "reason": "x"}, "timestamp": {"seconds": 1}}`)
		id := p.hear(`query-x{"a":[1,2]}`)
		p.say(`{"event": "STOP"}`)
		p.say(`{"return": ["b", 3], "id": %d}`, id)
		p.say(`{"error": {"class": "GenericError", "desc": "no such device"}, "id": %d}`, p.hear("device_del"))
		p.say(`{"return": "text", "id": %d}`, p.hear("query-y"))
	})
	ctx := t.Context()
	if err := m.open(ctx); err != nil {
		t.Fatal(err)
	}
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
	want := []Event{{"RESET", map[string]any{"guest": true, "reason": "x"}}, {"STOP", nil}}
	if d := cmp.Diff(want, events); d != "" {
		t.Error("-want +got", d)
	}
}

// Answers find their commands in any order, and one that is given up on does no
// harm.
func TestCommandsOverlap(t *testing.T) {
	m, p := newPeer(t, func(Event) {})
	ctx, cancel := context.WithCancel(t.Context())
	givenUp, waited := make(chan error, 1), make(chan error, 1)
	go func() { givenUp <- m.execute(ctx, "slow", nil, nil) }()
	slow := p.hear("slow")
	var got string
	go func() { waited <- m.execute(t.Context(), "quick", nil, &got) }()
	quick := p.hear("quick")
	cancel()
	if err := <-givenUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the one given up on: %v", err)
	}
	p.say(`{"return": "a", "id": %d}`, slow)
	p.say(`{"return": "b", "id": %d}`, quick)
	if err := <-waited; err != nil || got != "b" {
		t.Errorf("%q, %v", got, err)
	}
}

// A QEMU that reads nothing is given up on in time, be it at the write or behind
// another that waits there, and after half a command for good.
func TestAMonitorThatTakesNothing(t *testing.T) {
	m, p := newPeer(t, func(Event) {})
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 2 {
		wg.Go(func() {
			if err := m.execute(ctx, "cont", nil, nil); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a command that is not taken: %v", err)
			}
		})
	}
	wg.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wg.Go(func() {
		if _, err := p.conn.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
	if err := m.execute(ctx, "cont", nil, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a command that is taken in part: %v", err)
	}
	wg.Wait()
	<-m.done
	if err := m.execute(t.Context(), "cont", nil, nil); err == nil {
		t.Error("a command after half of one")
	}
}

func TestAMonitorsEndEndsCommands(t *testing.T) {
	for _, last := range []string{"", `{"return": {}`, "]"} {
		m, p := newPeer(t, func(Event) {})
		waited := make(chan error, 1)
		go func() { waited <- m.execute(t.Context(), "cont", nil, nil) }()
		p.hear("cont")
		if last != "" {
			p.say("%s", last)
		}
		p.conn.Close()
		if err := <-waited; err == nil || !strings.Contains(err.Error(), "monitor has ended") {
			t.Errorf("%q: %v", last, err)
		}
		if err := m.open(t.Context()); err == nil {
			t.Error("a monitor that has ended opens")
		}
	}
}
