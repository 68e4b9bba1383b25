package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// ahead is a context that a spare executor has made on its GPU, for one of its guest's that is to come.
// It has all that takes long: the context itself, and the guest's windows registered with the GPU. It
// fits one whose setup differs only in what a context is not made from.
type ahead struct {
	setup   ipc.Setup
	options gpu.ContextOptions // with the budget, and the meter of page
	budget  *lateBudget
	bar2    os.FileInfo
	shared  []byte
	page    *ipc.ControlPage

	device        gpu.Device
	context       gpu.Context
	windows       []byte
	registered    *hostMemory
	stopPopulated func()
	raised        bool // the process's priority
}

// errSealed ends a spare executor whose context ahead does not fit: since it was made the process may not
// open a GPU. vm starts another.
var errSealed = errors.New("the context ahead does not fit, and no other can be made in this process")

// makeAhead makes a context on the GPU that was opened, and tells vm. An error is one of the protocol or
// of the connection.
func (p process) makeAhead(ctx context.Context, conn *ipc.Conn, m ipc.Message, o *opened, log *slog.Logger) error {
	var s ipc.Setup
	err := m.Decode(&s)
	if n := len(m.Files); err == nil && n != 2 {
		err = fmt.Errorf("%q with %d files, want 2", m.Kind, n)
	}
	if err == nil && o.ahead != nil {
		err = errors.New("there is a context ahead already")
	}
	if err == nil {
		err = checkRings(&s)
	}
	if err != nil {
		return errors.Join(err, m.CloseFiles())
	}
	reply := ipc.Message{Kind: ipc.KindAhead}
	if o.ahead, err = p.newAhead(ctx, &s, m.Files[0], m.Files[1], o.device, log); err != nil {
		log.Debug("no context ahead", "err", err)
		reply.Error = err.Error()
	} else {
		o.ahead.raised = settle(&s, o.ahead.page, log)
		o.sealed = s.Sealed
	}
	return conn.Send(reply)
}

// newAhead makes a context. It closes the files.
func (p process) newAhead(ctx context.Context, s *ipc.Setup, bar2, pageFile *os.File, d gpu.Device, log *slog.Logger) (_ *ahead, err error) {
	a := &ahead{setup: *s, device: d, stopPopulated: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if a.page, err = ipc.OpenControlPage(pageFile); err != nil {
		return nil, errors.Join(err, bar2.Close())
	}
	if a.bar2, err = bar2.Stat(); err == nil {
		a.shared, err = mapShared(bar2)
	}
	if err = errors.Join(err, bar2.Close()); err != nil {
		return nil, err
	}
	var populated func()
	a.windows, populated, a.stopPopulated = windowsOf(s, a.shared, log)
	a.options = contextOptions(s, a.page, nil, newMeter(a.page, p.clock).elapsed)
	a.budget = &lateBudget{limit: a.options.MemoryLimit}
	a.options.Budget = a.budget
	if a.context, err = d.NewContext(ctx, a.options); err != nil {
		return nil, err
	}
	a.registered = register(a.context, a.windows, populated, log)
	return a, nil
}

// fits reports whether the context is what a setup asks for, on a GPU that is still there. page is
// the guest's, and bar2 its shared memory.
func (a *ahead) fits(s *ipc.Setup, page *ipc.ControlPage, bar2 *os.File) bool {
	now := contextOptions(s, page, nil, nil)
	st, err := bar2.Stat()
	return err == nil && os.SameFile(st, a.bar2) && !lost(a.device) && a.context.Fault() == nil &&
		s.GPU == a.setup.GPU && s.Header == a.setup.Header && s.Rings == a.setup.Rings &&
		now.Label == a.options.Label && now.MemoryLimit == a.options.MemoryLimit && now.KernelTimeLimit == a.options.KernelTimeLimit
}

// takeAhead returns the context ahead if a setup fits it and its memory is there for it, which is charged
// then. It is the caller's. Otherwise it is closed, and takeAhead returns nil.
func (o *opened) takeAhead(s *ipc.Setup, page *ipc.ControlPage, bar2 *os.File, memory gpu.Budget, log *slog.Logger) *ahead {
	if o == nil || o.ahead == nil {
		return nil
	}
	if a := o.ahead; a.fits(s, page, bar2) && a.budget.bind(memory) {
		o.ahead, o.device = nil, nil
		return a
	}
	if err := o.dropAhead(); err != nil {
		log.Debug("close the context ahead", "err", err)
	}
	return nil
}

// isSealed reports whether the process may open no GPU any more.
func (o *opened) isSealed() bool { return o != nil && o.sealed }

// dropAhead closes the context ahead, if there is one. The GPU stays open.
func (o *opened) dropAhead() error {
	if o.ahead == nil {
		return nil
	}
	a := o.ahead
	o.ahead = nil
	return a.close()
}

// close closes a context that no guest used, and releases what was made for it.
func (a *ahead) close() (err error) {
	a.stopPopulated()
	switch {
	case a.registered != nil:
		err = a.registered.close(a.context)
	case a.context != nil:
		err = a.context.Close()
	}
	return errors.Join(err, a.release())
}

// release releases what was made for the context, which is closed.
func (a *ahead) release() (err error) {
	if a == nil {
		return nil
	}
	if a.shared != nil {
		err = unix.Munmap(a.shared)
		a.shared = nil
	}
	if a.page != nil {
		err = errors.Join(err, a.page.Close())
		a.page = nil
	}
	return err
}

// lateBudget is the budget of a context that is made before it is known whose memory it takes. It is
// safe for concurrent use.
type lateBudget struct {
	limit uint64 // of the context, in bytes; 0: none

	mu    sync.Mutex
	taken uint64
	of    gpu.Budget // nil: it is not known yet
}

// bind has of pay what was taken, and all that is taken from now on. It reports false, and changes
// nothing, if of has less.
func (b *lateBudget) bind(of gpu.Budget) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of != nil || !of.Take(b.taken) {
		return false
	}
	b.of = of
	return true
}

// Take implements [gpu.Budget].
func (b *lateBudget) Take(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.of != nil:
		return b.of.Take(n)
	case n > b.most()-b.taken:
		return false
	}
	b.taken += n
	return true
}

// most is the most that may be taken before it is known whose it is.
func (b *lateBudget) most() uint64 {
	if b.limit == 0 {
		return maxGrowth
	}
	return b.limit
}

// Give implements [gpu.Budget].
func (b *lateBudget) Give(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of != nil {
		b.of.Give(n)
		return
	}
	b.taken -= n
}

// Room implements [gpu.Budget].
func (b *lateBudget) Room() (free, total uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of != nil {
		return b.of.Room()
	}
	return b.most() - b.taken, b.most()
}
