package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
)

// dialLimit limits the time of connecting to the monitor, whose socket listens before QEMU starts.
const dialLimit = 5 * time.Second

// lastEvents is how long events may be read after QEMU has exited. They are all in the socket then
// and end by themselves, except that a QEMU that was killed may reset the connection: the client
// keeps that error for the next command, and its events open until then.
const lastEvents = 5 * time.Second

var errMonitorEnded = errors.New("QEMU's monitor has ended")

// monitor runs commands on QEMU's monitor and passes on its events.
type monitor struct {
	client     *qmp.SocketMonitor
	done       chan struct{} // closed after the last event
	disconnect func() error  // ends the connection once
}

// newMonitor connects to the monitor that listens at path. It returns when QEMU, which greets after
// it has made its devices, takes commands, or when the connection ends. event is called for each
// event, in order, by one goroutine, and must not block. exited is closed when QEMU has exited.
func newMonitor(path string, exited <-chan struct{}, event func(qmp.Event)) (*monitor, error) {
	client, err := qmp.NewSocketMonitor("unix", path, dialLimit)
	if err != nil {
		return nil, err
	}
	if err := client.Connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errMonitorEnded, err), client.Disconnect())
	}
	events, err := client.Events(context.Background())
	if err != nil {
		return nil, errors.Join(err, client.Disconnect())
	}
	m := &monitor{client: client, done: make(chan struct{}), disconnect: sync.OnceValue(client.Disconnect)}
	go func() {
		defer close(m.done)
		for ev := range events {
			event(ev)
		}
	}()
	go func() {
		select {
		case <-exited:
		case <-m.done:
			return
		}
		select {
		case <-time.After(lastEvents):
			_ = m.disconnect() // close returns the error

		case <-m.done:
		}
	}()
	return m, nil
}

// close ends the connection. Closing a nil monitor does nothing.
func (m *monitor) close() error {
	if m == nil {
		return nil
	}
	err := m.disconnect()
	<-m.done
	return err
}

// execute runs a command. args and result may be nil. If ctx ends first, the command may still be
// carried out, and later commands wait for that.
func (m *monitor) execute(ctx context.Context, name string, args, result any) error {
	request, err := json.Marshal(qmp.Command{Execute: name, Args: args})
	if err != nil {
		return err
	}
	type reply struct {
		out []byte
		err error
	}
	replies := make(chan reply, 1)
	go func() {
		out, err := m.client.Run(request)
		replies <- reply{out, err}
	}()
	var r reply
	select {
	case r = <-replies:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The client decodes the empty reply of a closed connection and finds no JSON.
	if _, ended := errors.AsType[*json.SyntaxError](r.err); ended {
		return errMonitorEnded
	}
	if r.err != nil || result == nil {
		return r.err
	}
	answer := struct {
		Return any `json:"return"`
	}{result}
	if err := json.Unmarshal(r.out, &answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}
