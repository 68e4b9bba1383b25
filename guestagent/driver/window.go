package driver

import (
	"context"
	"errors"

	"vgpud/mediator/vgpu/abi"
)

// fill copies src to a window's start.
func (d *Device) fill(w abi.Window, src []byte) (n int, err error) {
	err = d.touch(func() { n = copy(d.shared[w.Offset:w.Offset+w.Size], src) })
	return n, err
}

// drain copies from a window's start to dst.
func (d *Device) drain(dst []byte, w abi.Window) error {
	return d.touch(func() { copy(dst, d.shared[w.Offset:w.Offset+w.Size]) })
}

// window takes a window of at least n bytes. When there is no room it first waits
// for this channel's commands, whose windows come back, then for others.
func (ch *Channel) window(ctx context.Context, n uint64) (abi.Window, error) {
	for {
		w, err := ch.dev.staging.take(n, stagingAlign)
		if err == nil || n > ch.dev.staging.size {
			return w, err
		}
		head := ch.head.Load()
		ch.submit.Lock()
		idle := ch.tail == head
		ch.submit.Unlock()
		if idle {
			return ch.dev.staging.wait(ctx, n, stagingAlign)
		}
		if err := ch.await(ctx, goal{past: head}); err != nil {
			return w, err
		}
	}
}

// enqueueWindow enqueues a command that uses a window, which is given back when the
// command has ended.
func (ch *Channel) enqueueWindow(ctx context.Context, p *Pending, e *abi.Entry, op abi.Opcode, w abi.Window) error {
	p.window = w
	if err := ch.enqueue(ctx, p, e, abi.Header{Op: op}, nil); err != nil {
		p.window = abi.Window{}
		ch.dev.staging.give(w)
		return err
	}
	return nil
}

// leave gives a window back unless its command, whose Pending was made lent, is
// still under way; then the channel does so when it has ended.
func (ch *Channel) leave(p *Pending, w abi.Window) {
	if w.Size == 0 {
		return
	}
	ch.keep.Lock()
	defer ch.keep.Unlock()
	switch {
	case p.busy.Load():
		p.window = w
	case p.err != nil && !ch.returned: // abandoned: the host may still write there
		ch.orphans = append(ch.orphans, w)
	default:
		ch.dev.staging.give(w)
	}
}

// text asks for a text of at most n bytes.
func (ch *Channel) text(ctx context.Context, op abi.Opcode, n uint64) (string, error) {
	w, err := ch.window(ctx, n)
	if err != nil {
		return "", err
	}
	p := Pending{lent: true}
	defer func() { ch.leave(&p, w) }()
	var e abi.Entry
	abi.WindowArg{Window: abi.Window{Offset: w.Offset, Size: n}}.Encode(&e)
	if err := ch.enqueue(ctx, &p, &e, abi.Header{Op: op}, nil); err != nil {
		return "", err
	}
	if err := p.Wait(ctx); err != nil {
		return "", err
	}
	length := p.value()[0]
	if length > n {
		return "", errors.New("the host says that a text is longer than its window")
	}
	text := make([]byte, length)
	err = ch.dev.drain(text, w)
	return string(text), err
}
