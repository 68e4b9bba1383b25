package driver

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"vgpud/mediator/vgpu/abi"
)

// bytes returns a window's memory. Only [Device.touch] makes it safe to access.
func (d *Device) bytes(w abi.Window) []byte { return d.shared[w.Offset : w.Offset+w.Size] }

// Up to maxCopiers processors copy at least copierBytes each: a single one is slower than a GPU's
// copy engine.
const (
	copierBytes = 256 << 10
	maxCopiers  = 4
)

// copyShared copies as many bytes as both slices have, to or from shared memory.
func (d *Device) copyShared(dst, src []byte) error {
	n := min(len(dst), len(src))
	parts := min(n/copierBytes, maxCopiers, runtime.GOMAXPROCS(0))
	if parts < 2 {
		return d.touch(func() { copy(dst, src) })
	}
	part := (n + parts - 1) / parts
	errs := make([]error, parts)
	var others sync.WaitGroup
	for i := 1; i < parts; i++ {
		others.Go(func() {
			lo, hi := i*part, min((i+1)*part, n)
			errs[i] = d.touch(func() { copy(dst[lo:hi], src[lo:hi]) })
		})
	}
	errs[0] = d.touch(func() { copy(dst[:part], src[:part]) })
	others.Wait()
	return errors.Join(errs...)
}

// window allocates a window of at least n bytes. Without room it first waits for this channel's
// commands, which return theirs, then for others'.
func (ch *Channel) window(ctx context.Context, n uint64) (abi.Window, error) {
	for {
		w, err := ch.dev.staging.alloc(n, stagingAlign)
		if err == nil || n > ch.dev.staging.size {
			return w, err
		}
		head := ch.head.Load()
		ch.submit.Lock()
		idle := ch.tail == head
		ch.submit.Unlock()
		if idle {
			return ch.dev.staging.allocWait(ctx, n, stagingAlign)
		}
		if err := ch.await(ctx, target{past: head}); err != nil {
			return w, err
		}
	}
}

// enqueueWindow enqueues a command that uses a window. The window is released when the command has
// ended.
func (ch *Channel) enqueueWindow(ctx context.Context, p *Pending, e *abi.Entry, h abi.Header, w abi.Window) error {
	p.window = w
	if err := ch.enqueue(ctx, p, e, h, nil); err != nil {
		p.window = abi.Window{}
		ch.dev.staging.release(w)
		return err
	}
	return nil
}

// withWindow calls f with a window of at least n bytes and the Pending of the command that f may
// run with it. If that command is still under way after f, the window is released when it ends.
func (ch *Channel) withWindow(ctx context.Context, n uint64, f func(p *Pending, w abi.Window) error) error {
	w, err := ch.window(ctx, n)
	if err != nil {
		return err
	}
	p := Pending{windowInUse: true}
	defer func() { ch.returnWindow(&p, w) }()
	return f(&p, w)
}

// returnWindow releases a window now, or, if its command is still under way, when that has ended.
// The command's Pending was made with windowInUse.
func (ch *Channel) returnWindow(p *Pending, w abi.Window) {
	if w.Size == 0 {
		return
	}
	ch.windowsMu.Lock()
	defer ch.windowsMu.Unlock()
	switch {
	case p.busy.Load():
		p.window = w
	case p.err != nil && !ch.windowsReturned: // abandoned: the host may still write there
		ch.abandonedWindows = append(ch.abandonedWindows, w)
	default:
		ch.dev.staging.release(w)
	}
}

// text runs a command that returns a text of at most n bytes.
func (ch *Channel) text(ctx context.Context, op abi.Opcode, n uint64) (text string, err error) {
	err = ch.withWindow(ctx, n, func(p *Pending, w abi.Window) error {
		args := abi.WindowArg{Window: abi.Window{Offset: w.Offset, Size: n}}
		if err := ch.run(ctx, p, op, args, nil); err != nil {
			return err
		}
		length := p.value()[0]
		if length > n {
			return errors.New("the host says that a text is longer than its window")
		}
		b := make([]byte, length)
		err := ch.dev.copyShared(b, ch.dev.bytes(w))
		text = string(b)
		return err
	})
	return text, err
}
