package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Serve is the program's main loop. It writes the inventory, samples at once and then at the given
// interval, and errors of GPUs as they occur, until in ends. A returned error has been written to
// out too.
func Serve(ctx context.Context, in io.Reader, out io.Writer, every time.Duration, open func() (Library, error)) error {
	w := writer{w: out}
	l, err := start(&w, open)
	if err != nil {
		return errors.Join(err, w.write(Message{Error: newProblem(err)}))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // it ends with the program at the latest
		_, err := io.Copy(io.Discard, in)
		cancel(err)
	}()
	var passing sync.WaitGroup
	passing.Go(func() {
		if err := passOn(ctx, l, &w); err != nil {
			cancel(err)
		}
	})
	again := time.NewTicker(every)
	defer again.Stop()
	for ctx.Err() == nil {
		if err := sample(&w, l); err != nil {
			cancel(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	passing.Wait() // it may hold the library
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, w.write(Message{Error: newProblem(cause)}))
	}
	return errors.Join(err, l.Close())
}

// Print writes the inventory and one sample of each GPU.
func Print(out io.Writer, open func() (Library, error)) error {
	w := writer{w: out}
	l, err := start(&w, open)
	if err != nil {
		return errors.Join(err, w.write(Message{Error: newProblem(err)}))
	}
	return errors.Join(sample(&w, l), l.Close())
}

// start opens the library and writes the inventory.
func start(w *writer, open func() (Library, error)) (Library, error) {
	l, err := open()
	if err != nil {
		return nil, err
	}
	v, err := l.Inventory()
	if err == nil {
		err = w.write(Message{Inventory: &v})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func sample(w *writer, l Library) error {
	s, err := l.Samples()
	if err != nil {
		return err
	}
	if s == nil {
		s = []Sample{} // an empty list still tells that the library answers
	}
	return w.write(Message{Samples: s})
}

// passOn writes errors of GPUs until ctx ends.
func passOn(ctx context.Context, l Library, w *writer) error {
	for {
		x, err := l.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for errors of the GPUs: %w", err)
		}
		if err := w.write(Message{Xid: &x}); err != nil {
			return err
		}
	}
}

// writer writes lines, from any goroutine.
type writer struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *writer) write(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err = w.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	return nil
}
