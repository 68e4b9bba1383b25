package system

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/proc"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// kept is what a context has that must be the same wherever it goes on: loaded kernels with their
// memory, and memory whose contents the test knows.
type kept struct {
	t     *testing.T
	gpu   *driver.Context
	loads []*workload.Load
	at    driver.Ptr
	data  []byte
}

// keep fills every other MiB of memory of a context with other than zeros.
func keep(t *testing.T, gpu *driver.Context, memory int) *kept {
	t.Helper()
	k := &kept{t: t, gpu: gpu, data: make([]byte, memory)}
	for i := 0; i+8 <= len(k.data); i += 4096 {
		if i/mib%2 == 0 {
			binary.LittleEndian.PutUint64(k.data[i:], uint64(i)+1)
		}
	}
	for _, name := range []string{"scan", "globals", "matmul"} {
		k.loads = append(k.loads, newLoad(t, gpu, name, corpus.Trivial))
	}
	var err error
	if k.at, err = gpu.Alloc(t.Context(), uint64(memory)); err != nil {
		t.Fatal(err)
	}
	if err := gpu.CopyIn(t.Context(), k.at, k.data); err != nil {
		t.Fatal(err)
	}
	k.check()
	return k
}

// check runs the kernels again, and compares the memory.
func (k *kept) check() {
	k.t.Helper()
	for _, l := range k.loads {
		if err := l.Run(k.t.Context(), k.gpu.Own()); err != nil {
			k.t.Fatal(err)
		}
	}
	got := make([]byte, len(k.data))
	if err := k.gpu.CopyOut(k.t.Context(), got, k.at); err != nil {
		k.t.Fatal(err)
	}
	if !bytes.Equal(got, k.data) {
		k.t.Fatal("the context's memory has changed")
	}
}

// moves returns how many tasks have left GPUs.
func (h *taskHost) moves() api.TaskMoves {
	h.t.Helper()
	all, err := h.Client.Tasks(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return all.Moves
}

// TestTaskLeavesUnused: a context that does nothing for 10 s while another waits leaves its GPU, and comes
// back with all that it had when it has something to do.
func TestTaskLeavesUnused(t *testing.T) {
	h := newTaskHost(t, 1)
	a := keep(t, h.begin(h.guest(api.VMSpec{Name: "a"}), 700*mib), 100*mib)
	b := h.guest(api.VMSpec{Name: "b"})
	begun := time.Now()
	next := h.submit(b, 600*mib)
	gpu, err := next.result()
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < 10*time.Second {
		t.Errorf("a context left although it was used %v before", d)
	}
	works(t, gpu)
	x := h.untilTask("the context to be parked", "a", func(x api.Task) bool { return x.State == api.TaskParked })
	if x.GPU != "" || x.OnHostBytes < 50*mib || x.OnHostBytes > 60*mib || x.Moves != 1 {
		t.Errorf("a context that has left is %+v", x)
	}
	// Now it has work, and waits.
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		a.check()
	}()
	h.untilTask("the context to wait", "a", func(x api.Task) bool { return waits(x) && x.Why == abi.WaitMemory.String() })
	if err := gpu.Close(); err != nil {
		t.Fatal(err)
	}
	<-checked
	if x := h.untilTask("the context to be back", "a", placed); x.OnHostBytes != 0 || x.Moves != 1 {
		t.Errorf("it is %+v", x)
	}
	if m := h.moves(); m != (api.TaskMoves{Idle: 1}) {
		t.Errorf("moves: %+v", m)
	}
}

// TestTaskLeavesForUrgent: a context that is at work leaves for an urgent guest's, and goes on where there
// is room, with right results.
func TestTaskLeavesForUrgent(t *testing.T) {
	h := newTaskHost(t, 2)
	a := keep(t, h.begin(h.guest(api.VMSpec{Name: "a"}), 700*mib), 20*mib)
	was := h.gpuOf(a.gpu)
	other := h.begin(h.guest(api.VMSpec{Name: "other"}), 900*mib)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				a.check()
			}
		}
	}()
	urgent := h.guest(api.VMSpec{Name: "urgent", PriorityCeiling: 5})
	begun := time.Now()
	gpu := h.begin(urgent, 800*mib)
	t.Logf("an urgent guest's context began after %v", time.Since(begun))
	if h.gpuOf(gpu) != was {
		t.Errorf("it is on GPU %d, want %d, where less leaves", h.gpuOf(gpu), was)
	}
	h.untilTask("the context to wait", "a", waits)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	h.untilTask("the context to be elsewhere", "a", func(x api.Task) bool { return placed(x) && x.GPU == fmt.Sprintf("gpu%d", 1-was) })
	close(stop)
	<-done
	a.check()
	works(t, gpu)
	if h.gpuOf(a.gpu) != 1-was {
		t.Errorf("the guest is told of GPU %d", h.gpuOf(a.gpu))
	}
	if m := h.moves(); m.Urgent != 1 || m.Growth+m.Idle != 0 {
		t.Errorf("moves: %+v", m)
	}
}

// TestTaskGrows: a context that needs more than it was granted gets it where it is, or goes on on the GPU
// that has as much, or waits; it fails only beyond its guest's limit.
func TestTaskGrows(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 2)
	dev := h.guest(api.VMSpec{Name: "a", MemoryLimitBytes: 900 * mib})
	a := keep(t, h.begin(dev, 100*mib), 20*mib)
	if _, err := a.gpu.Alloc(ctx, 150*mib); err != nil {
		t.Fatalf("where there is room: %v", err)
	}
	was := h.gpuOf(a.gpu)
	x := h.untilTask("the larger grant", "a", placed)
	if p, err := a.gpu.Placement(); err != nil || p.Granted < 170*mib || p.Granted != x.MemoryBytes || x.Moves != 0 {
		t.Errorf("granted %+v, %+v: %v", p, x, err)
	}
	there := h.begin(h.guest(api.VMSpec{Name: "there"}), 600*mib) // on the other GPU
	beside := h.begin(h.guest(api.VMSpec{Name: "beside"}), 700*mib)
	if h.gpuOf(there) == was || h.gpuOf(beside) != was {
		t.Fatalf("on GPUs %d and %d", h.gpuOf(there), h.gpuOf(beside))
	}
	grown := make(chan error, 1)
	go func() {
		_, err := a.gpu.Alloc(ctx, 400*mib)
		grown <- err
	}()
	x = h.untilTask("the context to wait for more", "a", func(x api.Task) bool { return x.State == api.TaskGrowing })
	if x.Why != abi.WaitMemory.String() || x.GPU != fmt.Sprintf("gpu%d", was) {
		t.Errorf("it is %+v", x)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-grown; err != nil {
		t.Fatalf("where there is room elsewhere: %v", err)
	}
	if got := h.gpuOf(a.gpu); got == was {
		t.Errorf("it is on GPU %d still", got)
	}
	a.check()
	works(t, beside)
	if _, err := a.gpu.Alloc(ctx, 500*mib); !errors.Is(err, abi.StatusMemoryLimit) {
		t.Errorf("beyond its guest's limit: %v", err)
	}
	if m := h.moves(); m != (api.TaskMoves{Growth: 1}) {
		t.Errorf("moves: %+v", m)
	}
}

// TestTasksThatGrowDoNotDeadlock: contexts that have all of a GPU and each want more get it, one after the
// other, and have their memory.
func TestTasksThatGrowDoNotDeadlock(t *testing.T) {
	h := newTaskHost(t, 1)
	var all []*kept
	for i := range 2 {
		all = append(all, keep(t, h.begin(h.guest(api.VMSpec{Name: fmt.Sprint("guest", i)}), 500*mib), 20*mib))
	}
	ended := make(chan error, len(all))
	for _, k := range all {
		go func() {
			_, err := k.gpu.Alloc(t.Context(), 700*mib)
			if err == nil {
				k.check()
				err = k.gpu.Close()
			}
			ended <- err
		}()
	}
	for range all {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestMovesOutliveTheDaemon kills the daemon while a context leaves its GPU, and again when it has left.
// The next daemons know of it, and it goes on with all that it had, which was more than it had asked for
// at first.
func TestMovesOutliveTheDaemon(t *testing.T) {
	h := newTaskHost(t, 1)
	a := keep(t, h.begin(h.guest(api.VMSpec{Name: "a"}), 300*mib), 200*mib)
	if _, err := a.gpu.Alloc(t.Context(), 300*mib); err != nil {
		t.Fatal(err)
	}
	urgent := h.submit(h.guest(api.VMSpec{Name: "urgent", PriorityCeiling: 5}), 800*mib)
	h.Until("the context to leave", func() error {
		for _, x := range h.tasks() {
			if x.VM == "a" && x.State != api.TaskPlaced {
				return nil
			}
		}
		return errors.New("it is placed")
	})
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	gpu, err := urgent.result()
	if err != nil {
		t.Fatal(err)
	}
	works(t, gpu)
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		a.check()
	}()
	h.untilTask("the context to wait", "a", waits)
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	x := h.untilTask("the context to wait on", "a", func(x api.Task) bool { return waits(x) && x.Moves == 1 })
	if x.MemoryBytes < 500*mib {
		t.Errorf("it asks for %d bytes", x.MemoryBytes)
	}
	if err := gpu.Close(); err != nil {
		t.Fatal(err)
	}
	<-checked
}

// TestParkedTaskOutlivesItsGPU: a context whose memory is on the host goes on elsewhere after its GPU was
// lost, and so does one whose new executor is killed while it makes the context anew.
func TestParkedTaskOutlivesItsGPU(t *testing.T) {
	h := newTaskHost(t, 2)
	a := keep(t, h.begin(h.guest(api.VMSpec{Name: "a"}), 700*mib), 200*mib)
	other := h.begin(h.guest(api.VMSpec{Name: "other"}), 900*mib)
	if h.gpuOf(a.gpu) != 0 || h.gpuOf(other) != 1 {
		t.Fatalf("on GPUs %d and %d", h.gpuOf(a.gpu), h.gpuOf(other))
	}
	h.begin(h.guest(api.VMSpec{Name: "urgent", PriorityCeiling: 5}), 800*mib)
	h.untilTask("the context to be on the host", "a", func(x api.Task) bool { return x.OnHostBytes > 0 })
	if err := h.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		a.check()
	}()
	h.untilTask("the context to wait", "a", waits)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	// Kill one executor of a while it copies, if it is seen in time.
	killed := false
	for !killed {
		select {
		case <-checked:
			t.Log("the executor was not seen in time")
			killed = true
			continue
		default:
		}
		executors, err := proc.Children(h.VM("a").PID)
		if err != nil {
			t.Fatal(err)
		}
		if len(executors) > 0 {
			if err := unix.Kill(executors[0], unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Fatal(err)
			}
			killed = true
		}
	}
	<-checked
	if got := h.gpuOf(a.gpu); got != 1 {
		t.Errorf("it is on GPU %d, want 1", got)
	}
	a.check()
}

// TestUnwrittenTaskOutlivesItsGPU: a context in which no kernel has run yet goes on elsewhere when its GPU
// is lost, with what its program copied; one in which some has fails with CUDA's error, as
// TestTasksOfALostGPU checks.
func TestUnwrittenTaskOutlivesItsGPU(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 2)
	var all []*driver.Context
	for _, name := range []string{"a", "b"} {
		w := h.submit(h.guest(api.VMSpec{Name: name}), 300*mib)
		gpu, err := w.result()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, gpu)
	}
	gpu := all[0]
	if h.gpuOf(gpu) != 0 {
		gpu = all[1]
	}
	load := newLoad(t, gpu, "scan", corpus.Trivial) // copies its input
	data := bytes.Repeat([]byte("kept"), 1<<18)
	at, err := gpu.Alloc(ctx, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := gpu.CopyIn(ctx, at, data); err != nil {
		t.Fatal(err)
	}
	if err := h.GPU.Kill(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	h.Until("the context to be on the host", func() error {
		for _, x := range h.tasks() {
			if x.OnHostBytes > 0 && x.GPU == "" {
				return nil
			}
		}
		return fmt.Errorf("tasks: %+v", h.tasks())
	})
	if err := gpu.CopyOut(ctx, got, at); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("its memory is wrong")
	}
	if err := load.Run(ctx, gpu.Own()); err != nil {
		t.Error(err)
	}
	if got := h.gpuOf(gpu); got != 1 {
		t.Errorf("it is on GPU %d, want 1", got)
	}
}
