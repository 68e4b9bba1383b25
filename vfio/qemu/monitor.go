package qemu

import (
	"context"
	"path/filepath"
)

// QMPSocket is the path of a second monitor, for another program's use: QEMU
// serves one client of it at a time.
func (v *VM) QMPSocket() string { return filepath.Join(v.dir, qmpSocket) }

// Execute runs a command of QEMU's monitor. args and result may be nil; else
// they are encoded and decoded as JSON. When ctx ends first, the command may
// still be carried out.
func (v *VM) Execute(ctx context.Context, name string, args, result any) error {
	if err := v.monitor.execute(ctx, name, args, result); err != nil {
		return v.fail(name, err)
	}
	return nil
}

// Expectation is an event of QEMU's monitor that somebody waits for.
type Expectation struct {
	v     *VM
	match func(Event) bool
	hit   chan Event // gets the event
}

// Expect begins to wait for the first event that match accepts; what makes the
// event happen comes after it, and then Wait. match is called by the one
// goroutine that reads events, and must not wait.
func (v *VM) Expect(match func(Event) bool) *Expectation {
	e := &Expectation{v: v, match: match, hit: make(chan Event, 1)}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiters[e] = true
	return e
}

// Named matches events by name.
func Named(name string) func(Event) bool {
	return func(e Event) bool { return e.Name == name }
}

// Wait waits for the event.
func (e *Expectation) Wait(ctx context.Context) (Event, error) {
	defer e.Forget()
	select {
	case ev := <-e.hit:
		return ev, nil
	case <-e.v.monitor.done:
	case <-ctx.Done():
		return Event{}, e.v.fail("wait for an event", context.Cause(ctx))
	}
	// It may have been the monitor's last.
	select {
	case ev := <-e.hit:
		return ev, nil
	default:
		return Event{}, e.v.fail("wait for an event", e.v.monitor.err)
	}
}

// Forget ends the waiting of an Expectation that Wait isn't called for.
func (e *Expectation) Forget() {
	e.v.mu.Lock()
	defer e.v.mu.Unlock()
	delete(e.v.waiters, e)
}

// follow hands out an event.
func (v *VM) follow(ev Event) {
	if ev.Name == "RESET" {
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
