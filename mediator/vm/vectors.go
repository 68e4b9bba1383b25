package vm

import (
	"errors"
	"fmt"
	"os"

	"vgpud/mediator/ipc"
)

// sendVectors sends the executor the eventfds of some interrupt vectors.
func (p *process) sendVectors(start, count int) {
	for v := start; v < start+count; v++ {
		if err := p.sendVector(v); err != nil {
			p.b.log.Warn("send an interrupt vector", "vector", v, "err", err)
		}
	}
}

// sendChangedVectors sends an executor that is ready all n interrupt vectors if they have changed since
// it was started.
func (p *process) sendChangedVectors(n int) {
	p.vectors.Lock()
	changed := p.changed
	p.changed = false
	p.vectors.Unlock()
	if changed {
		p.sendVectors(0, n)
	}
}

// sendAllVectors sends an executor that was started the eventfds that there are of n interrupt vectors,
// in one message: the guest waits for its context, and the executor makes it meanwhile.
func (p *process) sendAllVectors(n int) (err error) {
	p.vectors.Lock()
	defer p.vectors.Unlock()
	p.changed = false
	var all ipc.Vectors
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for v := range n {
		f, err := p.b.vector(v)
		if err != nil {
			return fmt.Errorf("interrupt vector %d: %w", v, err)
		}
		if f != nil {
			all.Indexes, files = append(all.Indexes, v), append(files, f)
		}
	}
	if len(files) == 0 {
		return nil // as it has it
	}
	m, err := ipc.NewMessage(ipc.KindVectors, all, files...)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil
	}
	return p.send(m)
}

func (p *process) sendVector(v int) (err error) {
	p.vectors.Lock()
	defer p.vectors.Unlock()
	f, err := p.b.vector(v)
	if err != nil {
		return err
	}
	var files []*os.File
	if f != nil {
		files = append(files, f)
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	m, err := ipc.NewMessage(ipc.KindVector, ipc.Vector{Index: v}, files...)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil || !p.ready {
		p.changed = true
		return nil // it gets all vectors once it is ready
	}
	return p.send(m)
}
