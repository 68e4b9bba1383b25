package host

import (
	"fmt"

	"vgpud/guestagent/driver"
)

// Footprint is what the host's processes hold while a guest is in some state: to
// be compared with what they hold when it has left that state.
type Footprint struct {
	GPU, Daemon, VM int // open files of the guest's GPU, the daemon, and its virtual GPU
	Executors       int
	Contexts        int
	Free            uint64 // bytes of GPU memory, by the GPU's own count
}

// Footprint measures. The GPU tells of its memory through observer, a context of
// another guest.
func (h *Host) Footprint(vm string, observer *driver.Context) Footprint {
	h.tb.Helper()
	v := h.VM(vm)
	f := Footprint{Contexts: v.Contexts}
	for _, p := range []struct {
		to  *int
		pid int
	}{{&f.GPU, h.gpu(v.GPU).PID()}, {&f.Daemon, h.Daemon.PID()}, {&f.VM, v.PID}} {
		n, err := Descriptors(p.pid)
		if err != nil {
			h.tb.Fatal(err)
		}
		*p.to = n
	}
	executors, err := Children(v.PID)
	if err != nil {
		h.tb.Fatal(err)
	}
	f.Executors = len(executors)
	if f.Free, _, err = observer.MemInfo(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
	return f
}

// gpu is the process of the GPU of that name.
func (h *Host) gpu(name string) *Process {
	h.tb.Helper()
	for i, g := range h.Config.GPUs {
		if g.Name == name {
			return h.GPUs[i]
		}
	}
	h.tb.Fatalf("there is no GPU %q", name)
	return nil
}

// LeftBehind says what is held now that was not when f was measured.
func (f Footprint) LeftBehind(now Footprint) error {
	if now.GPU > f.GPU || now.Daemon > f.Daemon || now.VM > f.VM ||
		now.Executors > f.Executors || now.Contexts > f.Contexts || now.Free < f.Free {
		return fmt.Errorf("before: %+v, now: %+v", f, now)
	}
	return nil
}
