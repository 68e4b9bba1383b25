package nvidia

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/gpu/nvidia/cuda"
)

// printBytes is the amount of kernels' output that is kept until it is fetched. Further output is
// dropped, as CUDA drops it.
const printBytes = 1 << 20

// output is the source of kernels' output.
type output interface {
	// take returns at most max bytes of the output, in whole lines if lines are shorter.
	take(max int) ([]byte, error)
	Close() error
}

// standardOutput is the process's standard output, to which the driver prints, redirected to a
// pipe.
type standardOutput struct {
	read  *os.File
	saved int // the original standard output's descriptor
	ended sync.WaitGroup

	mu   sync.Mutex
	text []byte
}

// capture takes over standard output until Close.
func capture() (_ *standardOutput, err error) {
	saved, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep standard output: %w", err)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe for what kernels print: %w", err), unix.Close(saved))
	}
	if err = unix.SetNonblock(p[0], true); err == nil {
		err = unix.Dup3(p[1], unix.Stdout, 0)
	}
	if err = errors.Join(err, unix.Close(p[1])); err != nil {
		return nil, errors.Join(fmt.Errorf("take over standard output: %w", err), unix.Close(p[0]), unix.Close(saved))
	}
	o := &standardOutput{read: os.NewFile(uintptr(p[0]), "kernels' output"), saved: saved}
	raw, err := o.read.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	// The goroutine never lets the pipe fill up: a driver that can't write blocks.
	o.ended.Go(func() {
		// An error is the pipe's end.
		_ = raw.Read(func(fd uintptr) bool { return !o.drain(int(fd)) })
	})
	return o, nil
}

// drain reads the contents of the pipe, and reports whether more can come.
func (o *standardOutput) drain(fd int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b [4096]byte
	for {
		n, err := unix.Read(fd, b[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		default:
			o.text = append(o.text, b[:min(n, printBytes-len(o.text))]...)
		}
	}
}

func (o *standardOutput) take(max int) ([]byte, error) {
	if err := cuda.FlushOutput(); err != nil {
		return nil, err
	}
	o.drain(int(o.read.Fd()))
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(max, len(o.text))
	if n < len(o.text) {
		if i := bytes.LastIndexByte(o.text[:n], '\n'); i >= 0 {
			n = i + 1
		}
	}
	out := slices.Clone(o.text[:n])
	o.text = append(o.text[:0], o.text[n:]...)
	return out, nil
}

// Close restores standard output.
func (o *standardOutput) Close() error {
	err := errors.Join(cuda.FlushOutput(), unix.Dup3(o.saved, unix.Stdout, 0), unix.Close(o.saved))
	o.ended.Wait() // the last writer is gone
	return errors.Join(err, o.read.Close())
}

// Printf returns the output of kernels.
func (c *Context) Printf(max int) ([]byte, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if max < 0 {
		return nil, fmt.Errorf("printf of %d bytes", max)
	}
	if c.d.out == nil {
		return nil, nil
	}
	if err := c.do("fetch what kernels print", c.fetchOutput); err != nil {
		return nil, err
	}
	return c.d.out.take(max)
}

// fetchOutput makes the driver write out kernels' output, which it does when a caller synchronises
// with their stream. It waits for nothing: running kernels print the next time.
func (c *Context) fetchOutput() error {
	for _, m := range c.printed() {
		if err := c.drv.StreamSynchronize(m.stream); err != nil {
			return err
		}
		c.mu.Lock()
		m.fetched = m.upTo
		c.mu.Unlock()
	}
	for _, b := range c.eventBerths() {
		if n := b.word.Load(); n == b.last.Load() && n != b.fetched {
			if err := c.drv.StreamSynchronize(b.stream); err != nil {
				return err
			}
			b.fetched = n
		}
	}
	return nil
}

// printed returns the idle lanes that may have printed, and their progress. A lane with an
// unsignalled word copy is not idle.
func (c *Context) printed() (all []mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lanes := slices.Clone(c.idle)
	for _, ch := range c.channels {
		if ch.signalled.Load() == ch.sent.Load() {
			lanes = append(lanes, ch.lane)
		}
	}
	for _, l := range lanes {
		if n := l.word.Load(); n != l.fetched && n == l.last.Load() {
			all = append(all, mark{l, n})
		}
	}
	return all
}
