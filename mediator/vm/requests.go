package vm

import (
	"errors"
	"maps"
	"os"
	"slices"

	"vgpud/mediator/ipc"
)

// errNoExecutor answers requests to an executor that is gone.
var errNoExecutor = errors.New("the context has no executor")

// request sends a request about a channel, whose reply calls done. If it returns an error, done is not
// called. A context that is not on its GPU gets the request when it is.
func (p *process) request(kind ipc.Kind, c ipc.Channel, done func(error)) error {
	m, err := ipc.NewMessage(kind, c)
	if err != nil {
		return err
	}
	if p == nil {
		return errNoExecutor
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moves.at != onGPU && !p.stopping {
		return p.hold(heldRequest{kind, c, done})
	}
	return p.ask(m, p.replied(heldRequest{kind, c, done}))
}

// replied returns what handles the reply to a request about a channel.
func (p *process) replied(r heldRequest) func(ipc.Message, error) {
	return func(_ ipc.Message, err error) {
		if !errors.Is(err, errNoExecutor) || !p.holdUnanswered(r) {
			r.done(err)
		}
	}
}

// ask sends a request whose reply calls done. If it returns an error, done is not called.
// Preconditions: mu is held.
func (p *process) ask(m ipc.Message, done func(ipc.Message, error)) error {
	if p.conn == nil {
		return errNoExecutor
	}
	p.lastID++
	m.ID = p.lastID
	if err := p.send(m); err != nil {
		return err
	}
	p.pending[m.ID] = done
	return nil
}

// reply calls the done function of the request that m answers.
func (p *process) reply(m ipc.Message) {
	p.mu.Lock()
	done := p.pending[m.ID]
	delete(p.pending, m.ID)
	p.mu.Unlock()
	if done == nil {
		return
	}
	if m.Error != "" {
		done(m, errors.New(m.Error))
		return
	}
	done(m, nil)
}

// send gives up on an executor that no longer reads. Preconditions: mu is held.
func (p *process) send(m ipc.Message) error {
	err := p.conn.Send(m)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.Join(err, p.conn.Expire())
	}
	return err
}

// closeConn closes the connection and fails the pending requests.
func (p *process) closeConn(conn *ipc.Conn) {
	p.mu.Lock()
	p.conn = nil
	pending := p.pending
	p.pending = make(map[uint64]func(ipc.Message, error))
	p.mu.Unlock()
	if err := conn.Close(); err != nil {
		p.b.log.Debug("close an executor's connection", "err", err)
	}
	for _, id := range slices.Sorted(maps.Keys(pending)) { // in order
		pending[id](ipc.Message{}, errNoExecutor)
	}
}
