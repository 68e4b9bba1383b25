package ipc

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns two connected ends, which are closed with the test.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	a, end, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = FromFile(end); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []*Conn{a, b} {
			if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return a, b
}

func TestReceiveGivesUp(t *testing.T) {
	a, b := pair(t)
	if _, err := a.ReceiveWithin(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came, and ReceiveWithin = %v", err)
	}
	if err := b.Send(Message{Kind: KindReady}); err != nil {
		t.Fatal(err)
	}
	if m, err := a.ReceiveWithin(time.Hour); err != nil || m.Kind != KindReady {
		t.Errorf("ReceiveWithin = %+v, %v", m, err)
	}
	// The other end sees that the connection was shut, and need not react.
	if err := a.Shut(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive after the other end was shut = %v, want io.EOF", err)
	}
	if _, err := a.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Receive after Shut = %v, want the deadline", err)
	}
	if err := b.Expire(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Receive after Expire = %v, want the deadline", err)
	}
}

func TestSendGivesUp(t *testing.T) {
	a, _ := pair(t)
	m, err := NewMessage(KindFault, Fault{Text: strings.Repeat("x", MaxMessage/2)})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = a.Send(m)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Send to one who does not read = %v, want the deadline", err)
	}
}

// TestCloseWithUnreadMessages: the kernel resets such a connection, and Receive returns io.EOF.
func TestCloseWithUnreadMessages(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(Message{Kind: KindQuit}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive = %v, want io.EOF", err)
	}
}

func TestReceiveRefuses(t *testing.T) {
	a, b := pair(t)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", "null", "[]", `{"kind":7}`, strings.Repeat(" ", MaxMessage+1)} {
		oob := unix.UnixRights(int(w.Fd()))
		if _, _, err := a.c.WriteMsgUnix([]byte(text), oob, nil); err != nil {
			t.Fatal(err)
		}
		m, err := b.Receive()
		if text == "null" { // is a message without a kind, which its receiver refuses
			if err != nil || m.Kind != "" || len(m.Files) != 1 {
				t.Errorf("null: %+v, %v", m, err)
			}
			if err := m.CloseFiles(); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%.20s: taken as %+v", text, m)
		}
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(left) > len(files) {
		t.Errorf("%d descriptors, before %d: %v", len(left), len(files), err)
	}
}

// TestWaitingConnsAreSmall: a connection on which nothing comes takes no room for a message.
func TestWaitingConnsAreSmall(t *testing.T) {
	const n = 100
	received := make(chan error)
	before := heapBytes()
	var ends []*Conn
	for range n {
		a, b := pair(t)
		ends = append(ends, a)
		go func() {
			m, err := b.Receive()
			if err == nil && m.Kind != KindReady {
				err = errors.New(string(m.Kind))
			}
			received <- err
		}()
	}
	if took := (heapBytes() - before) / n; took > MaxMessage/8 {
		t.Errorf("each takes %d bytes", took)
	}
	for _, c := range ends {
		if err := c.Send(Message{Kind: KindReady}); err != nil {
			t.Fatal(err)
		}
		if err := <-received; err != nil {
			t.Error(err)
		}
	}
}

// heapBytes returns how many bytes are in use.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
