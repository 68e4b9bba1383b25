package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/mediator/suspend"
)

// footprint is what the daemon and its GPU use while there are no guests.
type footprint struct {
	free       uint64         // free GPU memory, as a program of the host sees it
	used       uint64         // used GPU memory, as NVML reports it, if known
	open       map[string]int // the daemon's open descriptors, counted by kind
	children   int            // the daemon's child processes
	noted      int            // contexts that the daemon has recorded as off the GPU
	guests     int
	threads    int
	resident   uint64 // bytes
	goroutines int    // the daemon's, if it was ended to count them
}

// footprint measures the current footprint.
func (h *testbed) footprint(ctx context.Context) (f footprint, err error) {
	h.client.Close() // a connection is a descriptor of the daemon
	err = h.solo(ctx, func(m *member) error {
		a, err := m.ask(ctx, tenant.Request{Free: true})
		f.free = a.Free
		return err
	})
	if err != nil {
		return f, err
	}
	pid := h.daemon.Cmd.Process.Pid
	open, err := proc.Open(pid)
	if err != nil {
		return f, err
	}
	f.open = make(map[string]int)
	for _, what := range open {
		f.open[kindOf(what)]++
	}
	children, err := proc.Children(pid)
	if err != nil {
		return f, err
	}
	f.children = len(children)
	if f.threads, f.resident, err = proc.Size(pid); err != nil {
		return f, err
	}
	intents, err := suspend.NewIntents(filepath.Join(h.dir, "holds"))
	if err != nil {
		return f, err
	}
	noted, err := intents.List()
	if err != nil {
		return f, err
	}
	for _, slots := range noted {
		f.noted += len(slots)
	}
	vms, err := h.client.VMs(ctx)
	f.guests = len(vms)
	if err != nil {
		return f, err
	}
	gpus, err := h.client.GPUs(ctx)
	if err == nil && gpus[0].Hardware != nil && gpus[0].Hardware.MemoryUsedBytes != nil {
		f.used = *gpus[0].Hardware.MemoryUsedBytes
	}
	return f, err
}

// kindOf returns the kind of a descriptor: its name without the number that distinguishes it from
// others of the kind.
func kindOf(what string) string {
	kind, _, _ := strings.Cut(what, ":[")
	return kind
}

// descriptors returns the number of descriptors of all kinds.
func (f *footprint) descriptors() (n int) {
	for _, of := range f.open {
		n += of
	}
	return n
}

// opened lists the kinds of which now has more descriptors than f.
func (f *footprint) opened(now *footprint) (more []string) {
	for _, what := range slices.Sorted(maps.Keys(now.open)) {
		if n := now.open[what] - f.open[what]; n > 0 {
			more = append(more, fmt.Sprintf("%d × %s", n, what))
		}
	}
	return more
}

// goroutines ends the daemon and returns the number of goroutines it had.
func (h *testbed) goroutines(ctx context.Context) (n int, err error) {
	h.client.Close() // a connection has goroutines
	if err := rest(ctx, accountingLag); err != nil {
		return 0, err
	}
	p := h.daemon
	from, err := os.ReadFile(p.Log)
	if err == nil {
		err = p.Cmd.Process.Signal(unix.SIGQUIT) // a Go program prints its goroutines on SIGQUIT
	}
	if err != nil {
		return 0, fmt.Errorf("count the daemon's goroutines: %w", err)
	}
	<-p.Ended()
	h.daemon = nil
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return 0, fmt.Errorf("count the daemon's goroutines: %w", err)
	}
	if n = goroutinesIn(string(b[len(from):])); n == 0 {
		return 0, errors.New("count the daemon's goroutines: it did not say")
	}
	return n, nil
}

// goroutinesIn counts the goroutines of a dump, without the runtime's own. The runtime starts some
// of these, such as the collector's workers, only as it needs them.
func goroutinesIn(dump string) (n int) {
	for one := range strings.SplitSeq(dump, "\n\n") {
		if strings.HasPrefix(one, "goroutine ") && !strings.Contains(one, "created by runtime.") {
			n++
		}
	}
	return n
}

// kept returns how many bytes of GPU memory, and how many other resources, now has in excess of f.
func (f *footprint) kept(now *footprint) (memory float64, things int) {
	for what, n := range now.open {
		things += max(n-f.open[what], 0)
	}
	for _, n := range []int{now.children - f.children, now.noted - f.noted, now.guests - f.guests, now.goroutines - f.goroutines} {
		things += max(n, 0)
	}
	return max(float64(f.free)-float64(now.free), 0), things
}

func (f *footprint) String() string {
	return fmt.Sprintf("%d MiB of the GPU free, %d descriptors, %d processes, %d contexts off, %d guests, %d threads, %d MiB resident",
		f.free>>20, f.descriptors(), f.children, f.noted, f.guests, f.threads, f.resident>>20)
}

// leavingLimit limits the time until the resources of guests that have ended are free.
const leavingLimit = 12 * time.Second

// emptied waits until no part of the footprint exceeds before, or until leavingLimit has passed,
// and returns the footprint.
func (h *testbed) emptied(ctx context.Context, before *footprint) (footprint, error) {
	begin := time.Now()
	for {
		now, err := h.footprint(ctx)
		if err != nil {
			return now, err
		}
		memory, things := before.kept(&now)
		if memory == 0 && things == 0 || time.Since(begin) > leavingLimit {
			return now, nil
		}
		if err := rest(ctx, accountingLag); err != nil {
			return now, err
		}
	}
}
