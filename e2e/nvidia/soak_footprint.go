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

// footprint is what the daemon and its GPU have while there are no guests.
type footprint struct {
	free       uint64         // GPU memory that nobody has, as a program of the host sees it
	used       uint64         // as NVML says it, where that is known
	open       map[string]int // what the daemon's descriptors are of, and how many of each
	children   int            // its processes
	noted      int            // contexts that it holds to be off the GPU
	guests     int
	threads    int
	resident   uint64 // bytes
	goroutines int    // the daemon's, where it was ended to count them
}

// footprint measures it now.
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

// kindOf is what a descriptor is of, without the number that tells it from its like.
func kindOf(what string) string {
	kind, _, _ := strings.Cut(what, ":[")
	return kind
}

// descriptors are how many there are of all kinds.
func (f *footprint) descriptors() (n int) {
	for _, of := range f.open {
		n += of
	}
	return n
}

// opened says of what there are more descriptors than there were.
func (f *footprint) opened(now *footprint) (more []string) {
	for _, what := range slices.Sorted(maps.Keys(now.open)) {
		if n := now.open[what] - f.open[what]; n > 0 {
			more = append(more, fmt.Sprintf("%d × %s", n, what))
		}
	}
	return more
}

// goroutines ends the daemon, and returns how many goroutines it had.
func (h *testbed) goroutines(ctx context.Context) (n int, err error) {
	h.client.Close() // a connection has goroutines
	if err := rest(ctx, accountingLag); err != nil {
		return 0, err
	}
	p := h.daemon
	from, err := os.ReadFile(p.Log)
	if err == nil {
		err = p.Cmd.Process.Signal(unix.SIGQUIT) // by which programs in Go say so
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

// goroutinesIn counts those of a dump, without the runtime's own, such as the collector's
// workers, which come by and by.
func goroutinesIn(dump string) (n int) {
	for one := range strings.SplitSeq(dump, "\n\n") {
		if strings.HasPrefix(one, "goroutine ") && !strings.Contains(one, "created by runtime.") {
			n++
		}
	}
	return n
}

// kept is how much memory of the GPU, in bytes, and how many other things are there now and
// were not when f was measured.
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

// leavingLimit is how long what guests had may take to be gone when they are.
const leavingLimit = 12 * time.Second

// emptied is the footprint once nothing of it is more than it was, or when that has taken
// too long.
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
