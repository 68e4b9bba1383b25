package driver

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"vgpud/mediator/vgpu/abi"
)

// fill copies src to a window's start.
func (d *Device) fill(w abi.Window, src []byte) (n int, err error) {
	err = d.touch(func() { n = copy(d.shared[w.Offset:w.Offset+w.Size], src) })
	return n, err
}

// fillWide is fill for what may be long.
func (d *Device) fillWide(w abi.Window, src []byte) (n int, err error) {
	to := d.shared[w.Offset : w.Offset+w.Size]
	n = min(len(to), len(src))
	return n, d.copyWide(to[:n], src[:n])
}

// drain copies from a window's start to dst.
func (d *Device) drain(dst []byte, w abi.Window) error {
	return d.touch(func() { copy(dst, d.shared[w.Offset:w.Offset+w.Size]) })
}

// drainWide is drain for what may be long.
func (d *Device) drainWide(dst []byte, w abi.Window) error {
	from := d.shared[w.Offset : w.Offset+w.Size]
	n := min(len(from), len(dst))
	return d.copyWide(dst[:n], from[:n])
}

// A copy of at least two parts of widePart is made by up to wideMost processors at a
// time: one alone copies slower than a GPU does.
const (
	widePart = 256 << 10
	wideMost = 4
)

// copyWide copies as many bytes as both have, to or from shared memory.
func (d *Device) copyWide(dst, src []byte) error {
	parts := min(len(dst)/widePart, wideMost, runtime.GOMAXPROCS(0))
	if parts < 2 {
		return d.touch(func() { copy(dst, src) })
	}
	part := (len(dst) + parts - 1) / parts
	errs := make([]error, parts)
	var others sync.WaitGroup
	for i := 1; i < parts; i++ {
		others.Go(func() {
			lo, hi := i*part, min((i+1)*part, len(dst))
			errs[i] = d.touch(func() { copy(dst[lo:hi], src[lo:hi]) })
		})
	}
	errs[0] = d.touch(func() { copy(dst[:part], src[:part]) })
	others.Wait()
	return errors.Join(errs...)
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
