package system

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/proc"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// TestTasksOutliveTheDaemon kills the daemon while one task is placed and another waits. The placed
// one goes on; one that asks meanwhile waits until a daemon is back, which knows what the last one
// granted.
func TestTasksOutliveTheDaemon(t *testing.T) {
	h := newTaskHost(t, 2)
	bus, a := h.guestAndBus(api.VMSpec{Name: "a"}, nil)
	b, c := h.guest(api.VMSpec{Name: "b"}), h.guest(api.VMSpec{Name: "c"})
	first, second := h.begin(a, 600*mib), h.begin(b, 700*mib)
	h.begin(c, 400*mib) // beside the first: there is no room elsewhere
	lower := uint64(100 * mib)
	if _, err := h.Client.UpdateVM(t.Context(), "c", api.VMUpdate{MemoryLimitBytes: &lower}); err != nil {
		t.Fatal(err) // it takes nothing away
	}
	queued := h.submit(h.guest(api.VMSpec{Name: "queued"}), 500*mib)
	h.untilTask("a task that waits", "queued", waits)
	before := slices.DeleteFunc(h.tasks(), waits)
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	works(t, first)
	late := h.submit(a, 300*mib)
	h.Until("the guest to know that nobody decides", func() error {
		why, err := bus.Read(uint32(abi.TaskRow(1, abi.TaskReason))) // a's second context
		if err == nil && abi.WaitReason(why) != abi.WaitDaemon {
			err = errors.New(abi.WaitReason(why).String())
		}
		return err
	})
	h.StartDaemon()
	after := h.tasks()
	for _, x := range before {
		if !slices.ContainsFunc(after, func(y api.Task) bool {
			return x.VM == y.VM && x.Context == y.Context && x.GPU == y.GPU && x.MemoryBytes == y.MemoryBytes && placed(y)
		}) {
			t.Errorf("%+v is not among %+v", x, after)
		}
	}
	works(t, first)
	works(t, second)
	gpu, err := late.result()
	if err != nil {
		t.Fatal(err)
	}
	if h.gpuOf(gpu) != h.gpuOf(second) {
		t.Errorf("placed on GPU %d, where an earlier daemon granted 1000 MiB of 1024", h.gpuOf(gpu))
	}
	works(t, gpu)
	h.untilTask("the task that waits to wait on", "queued", waits)
	// One that ended while no daemon ran is given back.
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	if gpu, err = queued.result(); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
}

// TestTasksOfTheDead kills each kind of process that a task has. Its memory is another's within a
// second of its end, and others notice nothing.
func TestTasksOfTheDead(t *testing.T) {
	h := newTaskHost(t, 2)
	h.Timeout = soon
	by := h.guest(api.VMSpec{Name: "by"})
	bystander := h.begin(by, 600*mib)
	dead := h.guest(api.VMSpec{Name: "dead"})
	h.begin(dead, 600*mib)
	next := h.submit(by, 400*mib)
	if _, err := next.result(); err != nil {
		t.Fatal(err)
	}
	heir := h.guest(api.VMSpec{Name: "heir"})
	w := h.submit(heir, 900*mib)
	h.untilTask("the heir's task", "heir", waits)

	// An executor.
	executors, err := proc.Children(h.VM("dead").PID)
	if err != nil || len(executors) != 1 {
		t.Fatal(executors, err)
	}
	if err := next.gpu.Close(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := unix.Kill(executors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gpu, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("placed %v after the executor of another was killed", time.Since(begun))
	works(t, gpu)
	works(t, bystander)

	// A guest that waits, then one that is placed.
	queued := h.guest(api.VMSpec{Name: "queued"})
	h.submit(queued, 900*mib)
	h.untilTask("a task that waits", "queued", waits)
	last := h.submit(by, 424*mib) // fits beside the bystander
	if _, err := last.result(); err != nil {
		t.Fatal(err)
	}
	final := h.guest(api.VMSpec{Name: "final"})
	w = h.submit(final, 800*mib)
	h.untilTask("another task that waits", "final", waits)
	for _, name := range []string{"queued", "heir"} {
		begun = time.Now()
		if err := unix.Kill(h.VM(name).PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.Until("the dead guest's tasks to be gone", func() error {
			if slices.ContainsFunc(h.tasks(), func(x api.Task) bool { return x.VM == name }) {
				return fmt.Errorf("tasks: %+v", h.tasks())
			}
			return nil
		})
		t.Logf("%s's tasks were gone %v after its process was killed", name, time.Since(begun))
	}
	if gpu, err = w.result(); err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
	works(t, bystander)

	// A program that gives up while it waits.
	w = h.submit(h.guest(api.VMSpec{Name: "patient"}), 800*mib)
	h.untilTask("a task that waits", "patient", waits)
	w.cancel()
	<-w.done
	h.Until("no task that waits", func() error {
		if slices.ContainsFunc(h.tasks(), waits) {
			return fmt.Errorf("tasks: %+v", h.tasks())
		}
		return nil
	})
}

// TestTasksOfALostGPU kills a GPU. Its tasks fail, and after a reset begin anew where there is room.
func TestTasksOfALostGPU(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 2)
	a, b := h.guest(api.VMSpec{Name: "a"}), h.guest(api.VMSpec{Name: "b"})
	one, other := h.begin(a, 300*mib), h.begin(b, 300*mib)
	if h.gpuOf(one) != 0 {
		one, other = other, one
	}
	if err := h.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	h.Until("the loss of the GPU to be noticed", func() error {
		if _, err := one.Timestamp(ctx); err == nil {
			return errors.New("its context answers")
		}
		return nil
	})
	h.Until("the daemon to notice", func() error {
		g, err := h.Client.GPUs(ctx)
		if err != nil || g[0].Healthy {
			return fmt.Errorf("%+v, %v", g, err)
		}
		return nil
	})
	works(t, other)
	if err := one.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if got := h.gpuOf(one); got != 1 {
		t.Errorf("on GPU %d, which is lost", got)
	}
	works(t, one)
}
