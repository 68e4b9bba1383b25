package vm

import (
	"errors"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
)

// introduced is a daemon that the guest was introduced to.
func introduced(t *testing.T, path string) *ipc.Conn {
	t.Helper()
	conn, err := ipc.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := conn.ReceiveWithin(10 * time.Second)
	if err != nil || m.Kind != ipc.KindHello {
		t.Fatalf("first message %q, %v", m.Kind, err)
	}
	if err := m.CloseFiles(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// hears waits for the next message.
func hears(t *testing.T, daemon *ipc.Conn, want ipc.Kind, what string) {
	t.Helper()
	if m, err := daemon.ReceiveWithin(10 * time.Second); err != nil || m.Kind != want {
		t.Fatalf("%s: the daemon hears %q, %v; want %q", what, m.Kind, err, want)
	}
}

// TestDaemonIsToldOfChannels: a context and a channel that come or go are told of, each at
// once.
func TestDaemonIsToldOfChannels(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	daemon := introduced(t, path)
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
		hears(t, daemon, ipc.KindChanged, change.what)
		now.AwaitWaiters(1)
		now.Advance(changesEvery)
	}
	if err := daemon.Close(); err != nil {
		t.Error(err)
	}
}

// TestChangesAreToldOfTogether: whatever changes soon after a message comes to one more.
func TestChangesAreToldOfTogether(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	first, second := introduced(t, path), introduced(t, path)
	now := c.clock.(*clock.Sim)
	for range 3 {
		c.changed()
		hears(t, first, ipc.KindChanged, "the first change")
		hears(t, second, ipc.KindChanged, "the first change")
		now.AwaitWaiters(1)
		for range 100 {
			c.changed()
		}
		c.hand(handed{ipc.Handles{Slot: 5}, nil})
		hears(t, first, ipc.KindHandles, "another hundred changes at once")
		hears(t, second, ipc.KindHandles, "another hundred changes at once")
		now.Advance(changesEvery)
		hears(t, first, ipc.KindChanged, "a hundred changes, later")
		hears(t, second, ipc.KindChanged, "a hundred changes, later")
		now.AwaitWaiters(1)
		now.Advance(changesEvery)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}
