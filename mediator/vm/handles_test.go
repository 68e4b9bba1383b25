package vm

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// pipe returns a pipe whose reader learns when no copy of the writing end is left.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		_ = w.Close() // most are closed by then
	})
	return r, w
}

// wantClosed waits until no copy of a pipe's writing end is left.
func wantClosed(t *testing.T, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a copy is left open: %d, %v", n, err)
	}
}

// handles returns the message of a context's handles.
func handles(t *testing.T, slot int, files ...*os.File) ipc.Message {
	t.Helper()
	m, err := ipc.NewMessage(ipc.KindHandles, ipc.Handles{Slot: slot, Names: json.RawMessage(`{"client":7}`)}, files...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestExecutorsHandles checks that malformed messages end the context and leave nothing open.
func TestExecutorsHandles(t *testing.T) {
	for name, c := range map[string]struct {
		send func(t *testing.T, f *os.File) []ipc.Message
		want abi.ErrorCode
	}{
		"as they should be": {func(t *testing.T, f *os.File) []ipc.Message { return []ipc.Message{handles(t, 1, f, f)} }, abi.ErrorExecutorLost},
		"twice": {func(t *testing.T, f *os.File) []ipc.Message {
			return []ipc.Message{handles(t, 1, f), handles(t, 1, f)}
		}, abi.ErrorInternal},
		"another context's": {func(t *testing.T, f *os.File) []ipc.Message { return []ipc.Message{handles(t, 2, f)} }, abi.ErrorInternal},
		"no context's":      {func(t *testing.T, f *os.File) []ipc.Message { return []ipc.Message{handles(t, -1, f)} }, abi.ErrorInternal},
		"no files":          {func(t *testing.T, f *os.File) []ipc.Message { return []ipc.Message{handles(t, 1)} }, abi.ErrorInternal},
		"too many files":    {func(t *testing.T, f *os.File) []ipc.Message { return []ipc.Message{handles(t, 1, f, f, f, f, f)} }, abi.ErrorInternal},
		"no body": {func(t *testing.T, f *os.File) []ipc.Message {
			return []ipc.Message{{Kind: ipc.KindHandles, Files: []*os.File{f}}}
		}, abi.ErrorInternal},
		"files without being handles": {func(t *testing.T, f *os.File) []ipc.Message {
			return []ipc.Message{{Kind: ipc.KindReady, Files: []*os.File{f}}}
		}, abi.ErrorInternal},
	} {
		t.Run(name, func(t *testing.T) {
			b := testExecutors(t)
			b.daemons = &control{log: b.log}
			p := newProcess(b, vgpu.ContextRef{Slot: 1, Generation: 1})
			ours, theirs := pair(t)
			r, w := pipe(t)
			if err := theirs.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
				t.Fatal(err)
			}
			for _, m := range c.send(t, w) {
				if err := theirs.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(theirs.Shut(0), w.Close()); err != nil {
				t.Fatal(err)
			}
			if code, err := p.receive(ours); code != c.want {
				t.Errorf("code %v, error %v; want code %v", code, err, c.want)
			}
			p.dropHandles()
			wantClosed(t, r)
		})
	}
}

// TestHandlesReachEveryDaemon checks that connected and later daemons get the handles, no daemon
// gets them before the hello, and no copy is left in the end.
func TestHandlesReachEveryDaemon(t *testing.T) {
	c, l := newControl(t)
	path := l.Addr().String()
	serveControl(t, c, l)
	daemon := func() *ipc.Conn {
		t.Helper()
		conn, err := ipc.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := conn.Receive()
		if err != nil || m.Kind != ipc.KindHello {
			t.Fatalf("first message %q, %v", m.Kind, err)
		}
		if err := m.CloseFiles(); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	wantHandles := func(conn *ipc.Conn, slot, files int) {
		t.Helper()
		m, err := receive(conn)
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.ReadHandles()
		if err != nil || m.Kind != ipc.KindHandles || h.Slot != slot || len(m.Files) != files {
			t.Errorf("got %s of slot %d with %d files, %v; want slot %d with %d", m.Kind, h.Slot, len(m.Files), err, slot, files)
		}
		if err := m.CloseFiles(); err != nil {
			t.Fatal(err)
		}
	}
	r, w := pipe(t)
	first := daemon()
	c.addHandles(contextHandles{ipc.Handles{Slot: 3, Names: json.RawMessage(`1`)}, []*os.File{w}})
	wantHandles(first, 3, 1)
	second := daemon()
	wantHandles(second, 3, 1)
	r2, w2 := pipe(t)
	c.addHandles(contextHandles{ipc.Handles{Slot: 3, Names: json.RawMessage(`2`)}, []*os.File{w2}}) // of the context's next executor
	wantClosed(t, r)
	wantHandles(first, 3, 1)
	wantHandles(second, 3, 1)
	c.dropHandles(4, 0) // had none
	c.dropHandles(3, 0)
	wantHandles(first, 3, 0)
	wantHandles(second, 3, 0)
	wantClosed(t, r2)
	third := daemon()
	c.addHandles(contextHandles{ipc.Handles{Slot: 5, Names: json.RawMessage(`3`)}, nil})
	wantHandles(third, 5, 0) // and nothing of slot 3
	if err := errors.Join(first.Close(), second.Close(), third.Close()); err != nil {
		t.Error(err)
	}
}
