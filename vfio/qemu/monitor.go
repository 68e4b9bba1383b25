package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/digitalocean/go-qemu/qmp"
)

// QMP is the VM's connected monitor. Its events are the VM's own, see
// [VM.Expect].
func (v *VM) QMP() *qmp.SocketMonitor { return v.monitor }

// QMPSocket is the path of a second monitor, for a program's own use: QEMU
// serves one client of it at a time.
func (v *VM) QMPSocket() string { return filepath.Join(v.dir, qmpSocket) }

// Execute runs a command of QEMU's monitor. args and result may be nil; else
// they are encoded and decoded as JSON. When ctx ends first, the command may
// still be carried out.
func (v *VM) Execute(ctx context.Context, name string, args, result any) error {
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, args})
	if err != nil {
		return fmt.Errorf("VM %s: %s: %w", v.opts.Name, name, err)
	}
	type answer struct {
		raw []byte
		err error
	}
	done := make(chan answer, 1)
	// The monitor knows no context; QEMU's end ends this goroutine.
	go func() {
		raw, err := v.monitor.Run(request)
		done <- answer{raw, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return v.fail(name, a.err)
		}
		if result == nil {
			return nil
		}
		reply := struct {
			Return any `json:"return"`
		}{result}
		if err := json.Unmarshal(a.raw, &reply); err != nil {
			return fmt.Errorf("VM %s: %s: decode the answer: %w", v.opts.Name, name, err)
		}
		return nil
	case <-v.exited:
		return v.fail(name, v.ended())
	case <-ctx.Done():
		return v.fail(name, context.Cause(ctx))
	}
}

// errNoEvents is why an event that is waited for won't come.
var errNoEvents = errors.New("QEMU's monitor has ended")

// Expectation is an event of QEMU's monitor that somebody waits for.
type Expectation struct {
	v     *VM
	match func(qmp.Event) bool
	hit   chan qmp.Event // gets the event; closed when none can come
}

// Expect begins to wait for the first event that match accepts; what makes the
// event happen comes after it, and then Wait. match is called by the one
// goroutine that reads events, and must not wait.
func (v *VM) Expect(match func(qmp.Event) bool) *Expectation {
	e := &Expectation{v: v, match: match, hit: make(chan qmp.Event, 1)}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiters == nil {
		close(e.hit)
	} else {
		v.waiters[e] = true
	}
	return e
}

// Named matches events by name.
func Named(name string) func(qmp.Event) bool {
	return func(e qmp.Event) bool { return e.Event == name }
}

// Wait waits for the event.
func (e *Expectation) Wait(ctx context.Context) (qmp.Event, error) {
	select {
	case ev, ok := <-e.hit:
		if !ok {
			return ev, e.v.fail("wait for an event", errNoEvents)
		}
		return ev, nil
	case <-ctx.Done():
		e.Forget()
		return qmp.Event{}, e.v.fail("wait for an event", context.Cause(ctx))
	}
}

// Forget ends the waiting of an Expectation that Wait isn't called for.
func (e *Expectation) Forget() {
	e.v.mu.Lock()
	defer e.v.mu.Unlock()
	delete(e.v.waiters, e)
}

// follow hands out the monitor's events until it ends.
func (v *VM) follow(events <-chan qmp.Event) {
	for ev := range events {
		if ev.Event == "RESET" {
			v.guest.EndBoot(errReset)
		}
		v.mu.Lock()
		for e := range v.waiters {
			if e.match(ev) {
				e.hit <- ev
				delete(v.waiters, e)
			}
		}
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for e := range v.waiters {
		close(e.hit)
	}
	v.waiters = nil
}
