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

// serve has a monitor's socket at which each connection is dealt with by what is
// given, and which ends with the test.
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

// answer greets, answers so many commands with nothing, and reads one more.
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

// A QEMU that says nothing, or nothing more, is given up when the caller's time is
// over, and the connection is hung up: the monitor serves one client at a time, and
// the next one must not find this one there.
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

// A QEMU that ends in the middle ends what is asked of it, at once.
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
