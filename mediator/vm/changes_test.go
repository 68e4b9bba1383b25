package vm

import (
	"errors"
	"os"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
)

// dialAsDaemon connects to a guest and receives its hello.
func dialAsDaemon(t *testing.T, path string) *ipc.Conn {
	t.Helper()
	conn, err := ipc.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := receive(conn)
	if err != nil || m.Kind != ipc.KindHello {
		t.Fatalf("first message %q, %v", m.Kind, err)
	}
	if err := m.CloseFiles(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// receive receives a message, within the limit of a [proctest.Wait].
func receive(conn *ipc.Conn) (ipc.Message, error) {
	var w proctest.Wait
	for {
		m, err := conn.ReceiveWithin(time.Second)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return m, err
		}
		if over := w.Over(); over != nil {
			return m, errors.Join(err, over)
		}
	}
}

// wantMessage waits for the next message.
func wantMessage(t *testing.T, daemon *ipc.Conn, want ipc.Kind, what string) {
	t.Helper()
	if m, err := receive(daemon); err != nil || m.Kind != want {
		t.Fatalf("%s: the daemon receives %q, %v; want %q", what, m.Kind, err, want)
	}
}

// TestDaemonLearnsOfChannels checks that each context and channel that comes or goes sends a
// message at once.
func TestDaemonLearnsOfChannels(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	daemon := dialAsDaemon(t, path)
	b := testExecutors(t)
	b.daemons = c
	now := c.clock.(*clock.Sim)
	context := vgpu.ContextRef{Slot: 2, Generation: 1}
	channel := vgpu.Channel{ChannelRef: vgpu.ChannelRef{Slot: 3, Generation: 1}, Context: context}
	for _, change := range []struct {
		what string
		make func()
	}{
		{"a context came", func() { create(t, b, context, 0) }},
		{"a channel came", func() { b.OpenChannel(channel) }},
		{"a channel went", func() { b.CloseChannel(channel.ChannelRef) }},
		{"a context went", func() { b.DestroyContext(context) }},
	} {
		change.make()
		wantMessage(t, daemon, ipc.KindChanged, change.what)
		now.AwaitWaiters(1)
		now.Advance(changesEvery)
	}
	if err := daemon.Close(); err != nil {
		t.Error(err)
	}
}

// TestChangesAreBatched checks that all changes soon after a message share one more.
func TestChangesAreBatched(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	first, second := dialAsDaemon(t, path), dialAsDaemon(t, path)
	now := c.clock.(*clock.Sim)
	for range 3 {
		c.notifyChange()
		wantMessage(t, first, ipc.KindChanged, "the first change")
		wantMessage(t, second, ipc.KindChanged, "the first change")
		now.AwaitWaiters(1)
		for range 100 {
			c.notifyChange()
		}
		c.addHandles(contextHandles{ipc.Handles{Slot: 5}, nil})
		wantMessage(t, first, ipc.KindHandles, "another hundred changes at once")
		wantMessage(t, second, ipc.KindHandles, "another hundred changes at once")
		now.Advance(changesEvery)
		wantMessage(t, first, ipc.KindChanged, "a hundred changes, later")
		wantMessage(t, second, ipc.KindChanged, "a hundred changes, later")
		now.AwaitWaiters(1)
		now.Advance(changesEvery)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

// TestChangesWhileTheDaemonStandsStill: a daemon that reads nothing while channels come and go has its
// connection afterwards, room for messages that matter, and the last change.
func TestChangesWhileTheDaemonStandsStill(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	daemon := dialAsDaemon(t, path)
	now := c.clock.(*clock.Sim)
	for range 2000 { // ten seconds
		c.notifyChange()
		now.AwaitWaiters(1)
		now.Advance(changesEvery)
	}
	c.addHandles(contextHandles{ipc.Handles{Slot: 5}, nil})
	changes := 0
	for m := (ipc.Message{}); m.Kind != ipc.KindHandles; changes++ {
		var err error
		if m, err = receive(daemon); err != nil {
			t.Fatalf("after %d messages: %v", changes, err)
		}
	}
	if changes < 2 || changes > 100 {
		t.Errorf("%d messages, and one about handles", changes-1)
	}
	now.AwaitWaiters(1)
	now.Advance(changesEvery)
	wantMessage(t, daemon, ipc.KindChanged, "the changes that it was not told of")
	if err := daemon.Close(); err != nil {
		t.Error(err)
	}
}
