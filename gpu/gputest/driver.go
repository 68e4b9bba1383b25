// Package gputest has a driver and a runner of corpus cases for tests of packages that use gpu.
package gputest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"vgpud/gpu"
)

// Driver is the part of a GPU's driver that controls contexts, with the behaviour of the driver
// that was measured: disables are counted for each context, over all callers, and outlive them; an
// enable too many does nothing. It is a [gpu.Controller], and safe for concurrent use.
type Driver struct {
	mu       sync.Mutex
	contexts map[string]*context
	open     int
	fail     map[string]failure
}

type context struct {
	ended    bool
	disables int
	slice    time.Duration
	calls    []string
}

type failure struct {
	times int
	err   error
}

var _ gpu.Controller = (*Driver)(nil)

// Handles returns handles of the context with a name, with a file of the test's own.
func Handles(name string, f *os.File) gpu.Handles {
	b, err := json.Marshal(name)
	if err != nil {
		panic(err) // a string is JSON
	}
	return gpu.Handles{Files: []*os.File{f}, Names: b}
}

// Control implements [gpu.Controller].
func (d *Driver) Control(h gpu.Handles) (_ gpu.Control, err error) {
	defer func() {
		if err != nil {
			for _, f := range h.Files {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	var name string
	if err := json.Unmarshal(h.Names, &name); err != nil || name == "" {
		return nil, fmt.Errorf("control a context named %.40q: not a name", h.Names)
	}
	if len(h.Files) == 0 {
		return nil, fmt.Errorf("control context %s: no files", name)
	}
	if err := d.failing("control"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	return &control{d: d, name: name, of: d.of(name), files: h.Files}, nil
}

// Fail makes the next calls of an operation fail: control, suspend, resume or slice.
func (d *Driver) Fail(op string, times int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail == nil {
		d.fail = make(map[string]failure)
	}
	d.fail[op] = failure{times, err}
}

func (d *Driver) failing(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.fail[op]
	if f.times == 0 {
		return nil
	}
	f.times--
	d.fail[op] = f
	return f.err
}

// Disables returns how many disables of a context are outstanding.
func (d *Driver) Disables(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(name).disables
}

// Slice returns a context's time slice, 0 if none was set.
func (d *Driver) Slice(name string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(name).slice
}

// End ends a context's process and its channels: later calls about them fail. The next context with
// the name is another one.
func (d *Driver) End(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(name).ended = true
	delete(d.contexts, name)
}

// Calls returns the calls for a context, failed ones included.
func (d *Driver) Calls(name string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.of(name).calls...)
}

// Open returns how many controls are not closed.
func (d *Driver) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// of returns a context, which it makes if there is none. The caller holds mu.
func (d *Driver) of(name string) *context {
	if d.contexts == nil {
		d.contexts = make(map[string]*context)
	}
	c := d.contexts[name]
	if c == nil {
		c = &context{}
		d.contexts[name] = c
	}
	return c
}

// control controls one context.
type control struct {
	d     *Driver
	name  string
	of    *context
	files []*os.File
}

func (c *control) Suspend() error {
	return c.do("suspend", func(x *context) { x.disables++ })
}

func (c *control) Resume() error {
	return c.do("resume", func(x *context) { x.disables = max(x.disables-1, 0) })
}

func (c *control) SetTimeslice(d time.Duration) error {
	return c.do("slice", func(x *context) { x.slice = d })
}

// do makes a call, unless it is to fail.
func (c *control) do(op string, f func(*context)) error {
	err := c.d.failing(op)
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.of.calls = append(c.of.calls, op)
	switch {
	case err != nil:
		return err
	case c.of.ended:
		return fmt.Errorf("context %s: no such channel", c.name)
	}
	f(c.of)
	return nil
}

func (c *control) Close() error {
	c.d.mu.Lock()
	c.d.open--
	c.d.mu.Unlock()
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
