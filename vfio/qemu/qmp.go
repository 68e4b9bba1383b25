package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Event is one of QEMU's monitor (QAPI, "events").
type Event struct {
	Name string         `json:"event"`
	Data map[string]any `json:"data"`
}

// monitor speaks QMP to a QEMU. Commands have numbers, so that several may be on
// their way at once, and one that nobody waits for any more is no trouble.
type monitor struct {
	conn   net.Conn
	event  func(Event)   // called for each, in order, by the one reader
	opened chan struct{} // closed when QEMU takes commands
	done   chan struct{} // closed when the connection has ended
	err    error         // why it ended; valid after done

	writing chan struct{} // holds one while a command is written

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan reply
}

// reply is a command's.
type reply struct {
	result json.RawMessage
	err    error
}

// qmpMessage is any that QEMU sends.
type qmpMessage struct {
	Greeting json.RawMessage `json:"QMP"`
	Event
	ID     uint64          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// newMonitor speaks on conn, whose other end is a QEMU that starts. event must
// not wait.
func newMonitor(conn net.Conn, event func(Event)) *monitor {
	m := &monitor{
		conn: conn, event: event, opened: make(chan struct{}), done: make(chan struct{}),
		writing: make(chan struct{}, 1), pending: map[uint64]chan reply{},
	}
	go m.read()
	return m
}

// close ends the connection.
func (m *monitor) close() error {
	err := m.conn.Close()
	<-m.done
	return err
}

// open waits for QEMU to greet, which it does when it has made its devices, and
// begins.
func (m *monitor) open(ctx context.Context) error {
	select {
	case <-m.opened:
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return m.execute(ctx, "qmp_capabilities", nil, nil)
}

// execute runs a command; args and result may be nil.
func (m *monitor) execute(ctx context.Context, name string, args, result any) error {
	answer := make(chan reply, 1)
	m.mu.Lock()
	m.last++
	id := m.last
	m.pending[id] = answer
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.pending, id)
	}()
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{name, args, id})
	if err == nil {
		err = m.send(ctx, request)
	}
	if err != nil {
		return err
	}
	select {
	case r := <-answer:
		if r.err != nil || result == nil {
			return r.err
		}
		if err := json.Unmarshal(r.result, result); err != nil {
			return fmt.Errorf("decode the answer: %w", err)
		}
		return nil
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeLimit is how long QEMU may take to take a command, which it does at once
// unless it is stuck.
const writeLimit = 10 * time.Second

// send writes a command. mu is free meanwhile: what QEMU says is read, or it might
// wait for that.
func (m *monitor) send(ctx context.Context, request []byte) error {
	select {
	case m.writing <- struct{}{}:
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.writing }()
	limit := time.Now().Add(writeLimit)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	err := m.conn.SetWriteDeadline(limit)
	if err != nil {
		return err
	}
	n, err := m.conn.Write(request)
	switch {
	case err == nil:
		return nil
	case n > 0:
		// Nothing that came after half a command would be understood.
		err = errors.Join(err, m.conn.Close())
	}
	return fmt.Errorf("QEMU does not take the command: %w", err)
}

// read takes what QEMU sends until the connection ends.
func (m *monitor) read() {
	defer close(m.done)
	in := json.NewDecoder(m.conn)
	for {
		var msg qmpMessage
		if err := in.Decode(&msg); err != nil {
			m.err = fmt.Errorf("QEMU's monitor has ended: %w", err)
			return
		}
		switch {
		case msg.Greeting != nil:
			select {
			case <-m.opened:
			default:
				close(m.opened)
			}
		case msg.Name != "":
			m.event(msg.Event)
		default:
			m.answer(msg)
		}
	}
}

func (m *monitor) answer(msg qmpMessage) {
	r := reply{result: msg.Return}
	if msg.Error != nil {
		r.err = errors.New(msg.Error.Desc)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if answer := m.pending[msg.ID]; answer != nil {
		answer <- r
		delete(m.pending, msg.ID)
	}
}
