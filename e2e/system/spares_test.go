package system

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// newSpareHost returns a host with one GPU of 1 GiB whose guests keep spare executors.
func newSpareHost(t *testing.T) *taskHost {
	t.Helper()
	h := newTaskHost(t, 1)
	h.Timeout = soon
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.Config.GPUs[0].WarmExecutors = "true"
	h.StartDaemon()
	return h
}

// lent returns how much memory is lent to spare executors, in bytes.
func (h *taskHost) lent() uint64 {
	h.t.Helper()
	all, err := h.Client.GPUs(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return all[0].SpareBytes
}

// untilLent waits until memory is lent to a guest's spare executor, and no more than one has it, and
// returns that executor's process. The guest has contexts of those other processes.
func (h *taskHost) untilLent(vm string, others ...int) (spare int) {
	h.t.Helper()
	h.Until("memory to be lent to a spare executor", func() error {
		all, err := proc.Children(h.VM(vm).PID)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(pid int) bool { return slices.Contains(others, pid) })
		if h.lent() == 0 || len(all) != 1 {
			return fmt.Errorf("%d bytes are lent, processes %v beside %v", h.lent(), all, others)
		}
		spare = all[0]
		return nil
	})
	return spare
}

// executors returns the processes of a guest.
func (h *taskHost) executors(vm string) []int {
	h.t.Helper()
	all, err := proc.Children(h.VM(vm).PID)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// beginMore creates a context that floats, and checks what runs there.
func (h *taskHost) beginMore(dev *driver.Device, memory uint64) *driver.Context {
	h.t.Helper()
	c, err := h.submit(dev, memory).result()
	if err != nil {
		h.t.Fatal(err)
	}
	works(h.t, c)
	return c
}

// TestSpareContextIsUsed: the context that a spare executor made ahead is the guest's next one, in whose
// process nothing else could be made any more. One that does not fit, since the guest's limit has changed,
// or whose process is killed, costs the guest nothing.
func TestSpareContextIsUsed(t *testing.T) {
	h := newSpareHost(t)
	a := h.guest(api.VMSpec{Name: "a"})
	h.begin(a, 100*mib)
	first := h.executors("a")[0]
	spare := h.untilLent("a", first)
	h.beginMore(a, 100*mib)
	if all := h.executors("a"); !slices.Contains(all, spare) {
		t.Errorf("processes %v: the spare executor, %d, has ended", all, spare)
	}

	// It is killed.
	killed := h.untilLent("a", first, spare)
	if err := unix.Kill(killed, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c := h.beginMore(a, 100*mib)
	if all := h.executors("a"); slices.Contains(all, killed) {
		t.Errorf("processes %v: %d was killed", all, killed)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	// The guest's limit changes.
	h.Until("the context's process to end, and a spare executor", func() error {
		if all := h.executors("a"); len(all) != 3 || h.lent() == 0 {
			return fmt.Errorf("processes %v, %d bytes lent", all, h.lent())
		}
		return nil
	})
	limit := uint64(500 * mib)
	if _, err := h.Client.UpdateVM(t.Context(), "a", api.VMUpdate{MemoryLimitBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	h.beginMore(a, 100*mib)
}

// TestSpareMakesRoomForTasks: a task that needs the last of a GPU's memory gets it, and the spare executor
// that had it has ended then. So it is with a guest that does not float, and after the daemon was killed.
func TestSpareMakesRoomForTasks(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill %v", kill), func(t *testing.T) {
			h := newSpareHost(t)
			h.begin(h.guest(api.VMSpec{Name: "a"}), 100*mib)
			spare := h.untilLent("a", h.executors("a")[0])
			if kill {
				if err := h.Daemon.Kill(); err != nil {
					t.Fatal(err)
				}
				h.StartDaemon()
				if h.untilLent("a", slices.DeleteFunc(h.executors("a"), func(pid int) bool { return pid == spare })...) != spare {
					t.Error("the spare executor has not outlived the daemon")
				}
			}
			h.begin(h.guest(api.VMSpec{Name: "b"}), 924*mib)
			if all := h.executors("a"); slices.Contains(all, spare) || h.lent() != 0 {
				t.Errorf("processes %v, %d bytes are lent: the spare executor, %d, has another's memory", all, h.lent(), spare)
			}
		})
	}
	// A guest without a limit may take anything.
	for _, limit := range []uint64{924 * mib, 0} {
		t.Run(fmt.Sprintf("plain %d", limit), func(t *testing.T) {
			h := newSpareHost(t)
			h.begin(h.guest(api.VMSpec{Name: "a"}), 100*mib)
			h.untilLent("a", h.executors("a")[0])
			h.NewVM(api.VMSpec{Name: "plain", MemoryLimitBytes: limit})
			h.Until("nothing to be lent", func() error {
				if n := h.lent(); n > 0 {
					return fmt.Errorf("%d bytes are lent", n)
				}
				return nil
			})
		})
	}
}
