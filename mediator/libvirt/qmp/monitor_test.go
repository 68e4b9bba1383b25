package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve serves a monitor's socket by calling deal for each connection, until the test ends.
func serve(t *testing.T, deal func(net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "qmp")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			deal(conn)
			_ = conn.Close() // it may be closed
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return socket
}

const greeting = `{"QMP": {"version": {"qemu": {"micro": 3, "minor": 1, "major": 11}, "package": ""}, "capabilities": []}}` + "\n"

// answer greets, answers that many commands with an empty result, and reads one more.
func answer(conn net.Conn, commands int) error {
	in := json.NewDecoder(conn)
	if _, err := conn.Write([]byte(greeting)); err != nil {
		return err
	}
	var command json.RawMessage
	for range commands {
		if err := in.Decode(&command); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(`{"return": {}}` + "\n")); err != nil {
			return err
		}
	}
	return in.Decode(&command)
}

// A silent QEMU is given up at the end of the context, and the connection is closed, because the
// monitor serves one client at a time.
func TestMonitorThatNeverAnswers(t *testing.T) {
	for name, commands := range map[string]int{"not even a greeting": -1, "not its capabilities": 0, "not a command": 1} {
		t.Run(name, func(t *testing.T) {
			asked, hungUp := make(chan struct{}), make(chan struct{})
			socket := serve(t, func(conn net.Conn) {
				defer close(hungUp)
				if commands >= 0 {
					if err := answer(conn, commands); err != nil {
						t.Error(err)
					}
				}
				close(asked)
				var b [1]byte
				_, _ = conn.Read(b[:]) // until the other side goes
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			late := errors.New("too late")
			go func() {
				<-asked
				cancel(late)
			}()
			m, err := Dial(ctx, socket)
			if err == nil {
				err = m.Run(ctx, "query-status", nil, nil)
				if cerr := m.Close(); cerr != nil {
					t.Error(cerr)
				}
			}
			if !errors.Is(err, late) || !strings.Contains(err.Error(), "no answer") {
				t.Errorf("%v", err)
			}
			<-hungUp
		})
	}
}

// TestDialTellsTheCause: the error names the cause of a context's end before there is a connection,
// too.
func TestDialTellsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	cancel(late)
	if m, err := Dial(ctx, serve(t, func(net.Conn) {})); m != nil || !errors.Is(err, late) {
		t.Errorf("%v, %v", m, err)
	}
}

// A QEMU that ends during a command ends the command at once.
func TestMonitorThatCloses(t *testing.T) {
	for name, commands := range map[string]int{"before its greeting": -1, "before its capabilities": 0, "in the middle of a command": 1} {
		t.Run(name, func(t *testing.T) {
			socket := serve(t, func(conn net.Conn) {
				if commands >= 0 {
					if err := answer(conn, commands); err != nil {
						t.Error(err)
					}
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			m, err := Dial(ctx, socket)
			if err == nil {
				err = m.Run(ctx, "query-status", nil, nil)
				if cerr := m.Close(); cerr != nil {
					t.Error(cerr)
				}
			}
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "has the VM ended?") {
				t.Errorf("%v", err)
			}
		})
	}
}
