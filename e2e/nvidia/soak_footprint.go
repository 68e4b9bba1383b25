package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/mediator/hold"
)

// footprint is what the daemon and its GPU have while there are no guests.
type footprint struct {
	free        uint64 // GPU memory that nobody has, as a program of the host sees it
	used        uint64 // as NVML says it, where that is known
	descriptors int    // the daemon's
	children    int    // its processes
	noted       int    // contexts that it holds to be off the GPU
	guests      int
	threads     int
	resident    uint64 // bytes
}

// footprint measures it now.
func (h *house) footprint(ctx context.Context) (f footprint, err error) {
	err = h.solo(ctx, func(m *member) error {
		a, err := m.ask(ctx, tenant.Request{Free: true})
		f.free = a.Free
		return err
	})
	if err != nil {
		return f, err
	}
	pid := h.daemon.Cmd.Process.Pid
	if f.descriptors, err = proc.Descriptors(pid); err != nil {
		return f, err
	}
	children, err := proc.Children(pid)
	if err != nil {
		return f, err
	}
	f.children = len(children)
	if f.threads, f.resident, err = proc.Size(pid); err != nil {
		return f, err
	}
	intents, err := hold.NewIntents(filepath.Join(h.dir, "holds"))
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

// kept is how much memory of the GPU, in bytes, and how many other things are there now and
// were not when f was measured.
func (f *footprint) kept(now *footprint) (memory float64, things int) {
	for _, n := range []int{now.descriptors - f.descriptors, now.children - f.children, now.noted - f.noted, now.guests - f.guests} {
		things += max(n, 0)
	}
	return max(float64(f.free)-float64(now.free), 0), things
}

func (f *footprint) String() string {
	return fmt.Sprintf("%d MiB of the GPU free, %d descriptors, %d processes, %d contexts off, %d guests, %d threads, %d MiB resident",
		f.free>>20, f.descriptors, f.children, f.noted, f.guests, f.threads, f.resident>>20)
}

// leavingLimit is how long what guests had may take to be gone when they are.
const leavingLimit = 12 * time.Second

// emptied is the footprint once nothing of it is more than it was, or when that has taken
// too long.
func (h *house) emptied(ctx context.Context, before *footprint) (footprint, error) {
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
