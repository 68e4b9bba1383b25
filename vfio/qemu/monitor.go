package qemu

import (
	"context"
	"path/filepath"

	"vgpud/internal/qmpconn"
)

// QMPSocket returns the path of a second monitor, for another program. QEMU serves one client of it
// at a time.
func (v *VM) QMPSocket() string { return filepath.Join(v.dir, qmpSocket) }

// Execute runs a command of QEMU's monitor. args and result may be nil; else they are encoded and
// decoded as JSON. When ctx ends first, the command may still be carried out.
func (v *VM) Execute(ctx context.Context, name string, args, result any) error {
	if err := v.monitor.Run(ctx, name, args, result); err != nil {
		return v.fail(name, err)
	}
	return nil
}

// Expectation is a pending wait for one event of QEMU's monitor.
type Expectation struct {
	v     *VM
	match func(qmpconn.Event) bool
	hit   chan qmpconn.Event // receives the event
}

// Expect starts a wait for the first event that match accepts. The caller calls it before the
// action that causes the event, and Wait after it. match is called by the one goroutine that reads
// events, and must not block.
func (v *VM) Expect(match func(qmpconn.Event) bool) *Expectation {
	e := &Expectation{v: v, match: match, hit: make(chan qmpconn.Event, 1)}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiters[e] = true
	return e
}

// Named matches events by name.
func Named(name string) func(qmpconn.Event) bool {
	return func(e qmpconn.Event) bool { return e.Event == name }
}

// Wait waits for the event.
func (e *Expectation) Wait(ctx context.Context) (qmpconn.Event, error) {
	defer e.Forget()
	select {
	case ev := <-e.hit:
		return ev, nil
	case <-e.v.monitor.Done():
	case <-ctx.Done():
		return qmpconn.Event{}, e.v.fail("wait for an event", context.Cause(ctx))
	}
	// The event may have been the monitor's last.
	select {
	case ev := <-e.hit:
		return ev, nil
	default:
		return qmpconn.Event{}, e.v.fail("wait for an event", qmpconn.ErrEnded)
	}
}

// Forget ends a wait without calling Wait.
func (e *Expectation) Forget() {
	e.v.mu.Lock()
	defer e.v.mu.Unlock()
	delete(e.v.waiters, e)
}

// dispatch passes an event to the expectations that match it.
func (v *VM) dispatch(ev qmpconn.Event) {
	if ev.Event == "RESET" {
		v.guest.EndBoot(errReset)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for e := range v.waiters {
		if e.match(ev) {
			e.hit <- ev
			delete(v.waiters, e)
		}
	}
}
