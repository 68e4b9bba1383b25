package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/agent"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// taskHost is a host with GPUs of 1 GiB and guests that float over them.
type taskHost struct {
	*host.Host
	t *testing.T
}

func newTaskHost(t *testing.T, gpus int) *taskHost {
	t.Helper()
	return &taskHost{host.StartGPUs(t, gpus, "dfq"), t}
}

// guest creates a guest that floats.
func (h *taskHost) guest(s api.VMSpec) *driver.Device {
	h.t.Helper()
	s.Float = true
	return h.NewGuest(s)
}

// guestAndBus creates a guest that floats, and returns its bus too. The driver uses what view makes of
// that, if there is a view.
func (h *taskHost) guestAndBus(s api.VMSpec, view func(driver.Bus) driver.Bus) (driver.Bus, *driver.Device) {
	h.t.Helper()
	s.Float = true
	bus, err := driver.DialVFIOUser(h.t.Context(), h.NewVM(s).Socket)
	if err != nil {
		h.t.Fatal(err)
	}
	seen := driver.Bus(bus)
	if view != nil {
		seen = view(bus)
	}
	dev, err := driver.Open(h.t.Context(), seen)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return bus, dev
}

// begin creates a context that floats and has a GPU, and checks what runs there.
func (h *taskHost) begin(dev *driver.Device, memory uint64) *driver.Context {
	h.t.Helper()
	w := h.submit(dev, memory)
	c, err := w.result()
	if err != nil {
		h.t.Fatal(err)
	}
	works(h.t, c)
	return c
}

// waiter is a context that is being created.
type waiter struct {
	done   chan struct{}
	cancel context.CancelFunc
	gpu    *driver.Context
	err    error
}

// submit begins to create a context that floats.
func (h *taskHost) submit(dev *driver.Device, memory uint64) *waiter {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiter{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.done)
		w.gpu, w.err = dev.NewContext(ctx, driver.ContextOptions{Task: &driver.Task{MemoryBytes: memory, Blocks: 8, Threads: 128}})
	}()
	h.t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

// result waits until the context has a GPU, or gets none.
func (w *waiter) result() (*driver.Context, error) {
	<-w.done
	return w.gpu, w.err
}

// tasks returns the host's tasks.
func (h *taskHost) tasks() []api.Task {
	h.t.Helper()
	all, err := h.Client.Tasks(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return all.Tasks
}

// untilTask waits until one of a guest's tasks is as ok says.
func (h *taskHost) untilTask(what, vm string, ok func(api.Task) bool) (found api.Task) {
	h.t.Helper()
	h.Until(what, func() error {
		for _, x := range h.tasks() {
			if x.VM == vm && ok(x) {
				found = x
				return nil
			}
		}
		return fmt.Errorf("tasks: %+v", h.tasks())
	})
	return found
}

func waits(x api.Task) bool  { return x.State == api.TaskWaits }
func placed(x api.Task) bool { return x.State == api.TaskPlaced }

// gpuOf returns on which GPU a context is.
func (h *taskHost) gpuOf(c *driver.Context) int {
	h.t.Helper()
	p, err := c.Placement()
	if err != nil || p.State != abi.TaskPlaced {
		h.t.Fatalf("placement %+v, %v", p, err)
	}
	return p.GPU
}

const mib = 1 << 20

// soon is how long tests wait for what takes a second at most, however busy the host is: what never comes
// fails them long before they are out of time.
const soon = 40 * time.Second

// staysWaiting waits until a guest's task waits for a reason, and fails if the task is placed instead.
func (h *taskHost) staysWaiting(vm string, why abi.WaitReason) {
	h.t.Helper()
	h.untilTask("a task that waits for "+why.String(), vm, func(x api.Task) bool {
		if placed(x) {
			h.t.Fatalf("%s's task has %d bytes of %s, and should wait for %v", vm, x.MemoryBytes, x.GPU, why)
		}
		return x.Why == why.String()
	})
}

// TestTasksFillFourGPUs has tasks of several guests fill four GPUs. Each is on the GPU that has room,
// with the memory that it asked for and no more; one waits and begins when another ends; and what
// they compute is right.
func TestTasksFillFourGPUs(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 4)
	a := h.guest(api.VMSpec{Name: "a", Weight: 2, MemoryLimitBytes: 1000 * mib})
	b := h.guest(api.VMSpec{Name: "b", Guarantee: 0.25})
	c := h.guest(api.VMSpec{Name: "c", Cap: 0.5})
	var on []int
	var all []*driver.Context
	for _, dev := range []*driver.Device{a, b, c} {
		all = append(all, h.begin(dev, 600*mib))
		on = append(on, h.gpuOf(all[len(all)-1]))
	}
	all = append(all, h.begin(c, 424*mib)) // the rest of c's 1 GiB
	on = append(on, h.gpuOf(all[3]))
	slices.Sort(on)
	if !slices.Equal(on, []int{0, 1, 2, 3}) {
		t.Errorf("on GPUs %v", on)
	}
	// A grant is what its context may take, and no more.
	if free, total, err := all[0].MemInfo(ctx); err != nil || total != 600*mib || free > total {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	if _, err := all[0].Alloc(ctx, 1001*mib); !errors.Is(err, abi.StatusMemoryLimit) && !errors.Is(err, abi.StatusOutOfMemory) {
		t.Errorf("more than its guest may have: %v", err)
	}
	if v := h.VM("a"); !v.Float || v.Contexts != 1 || v.MemoryLimitBytes != 1000*mib {
		t.Errorf("a guest that floats is shown as %+v", v)
	}

	d := h.guest(api.VMSpec{Name: "d"})
	w := h.submit(d, 700*mib)
	x := h.untilTask("a task that waits", "d", func(x api.Task) bool { return waits(x) && x.Why != "" })
	if x.MemoryBytes != 700*mib || x.GPU != "" || x.Why != abi.WaitMemory.String() {
		t.Errorf("%+v", x)
	}
	small := h.begin(d, 100*mib) // passes the first
	was := h.gpuOf(all[0])
	if err := errors.Join(all[0].Close(), small.Close()); err != nil {
		t.Fatal(err)
	}
	last, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	works(t, last)
	if got := h.gpuOf(last); got != was {
		t.Errorf("the task that waited is on GPU %d, want %d, where another ended", got, was)
	}
	gpus, err := h.Client.GPUs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, g := range gpus {
		sum += g.GrantedBytes
		if g.GrantedBytes > g.MemoryBytes {
			t.Errorf("%s has granted %d of %d bytes", g.Name, g.GrantedBytes, g.MemoryBytes)
		}
	}
	if want := uint64(600+600+424+700) * mib; sum != want {
		t.Errorf("%d bytes are granted, want %d", sum, want)
	}
	// The guest's time on all of its GPUs is its own.
	h.Until("an account of c's work", func() error {
		works(t, all[2]) // until one is seen
		works(t, all[3])
		v := h.VM("c")
		var contexts, used int
		for _, on := range v.OnGPUs {
			contexts += on.Contexts
			if on.GPUSeconds > 0 {
				used++
			}
		}
		if v.GPUSeconds == 0 || v.GPUSecondsOwn == nil || *v.GPUSecondsOwn == 0 || v.Kernels < 2 || len(v.OnGPUs) != 4 || contexts != v.Contexts || used != 2 {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
}

// TestTaskRequests asks for what can't be.
func TestTaskRequests(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 1)
	dev := h.guest(api.VMSpec{Name: "a", MemoryLimitBytes: 500 * mib})
	for name, c := range map[string]struct {
		memory uint64
		want   error
	}{
		"nothing":        {0, abi.ErrorBadRequest},
		"2^64-1 bytes":   {1<<64 - 1, abi.ErrorNoRoom},
		"over a's limit": {501 * mib, abi.ErrorLimit},
	} {
		_, err := dev.NewContext(ctx, driver.ContextOptions{Task: &driver.Task{MemoryBytes: c.memory}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// None of that is in the way of a good one.
	first := h.begin(dev, 300*mib)
	// A request beyond a's limit waits for a's other contexts.
	w := h.submit(dev, 201*mib)
	h.untilTask("a task that waits for its guest's own", "a", func(x api.Task) bool { return x.Why == abi.WaitGuest.String() }) // beside one that is placed
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	// One that doesn't say what it needs has all that the guest may have.
	whole := contextOf(t, dev)
	works(t, whole)
	if p, err := whole.Placement(); err != nil || p.State != abi.TaskPlaced || p.Granted != 500*mib {
		t.Errorf("placement %+v, %v", p, err)
	}
	// The agent's check needs less, and runs beside it once there is room.
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	most := h.begin(dev, 430*mib)
	if r, err := agent.Check(ctx, nil, dev, agent.CheckOptions{}); err != nil || !r.OK {
		t.Errorf("check: %+v, %v", r, err)
	}
	if err := most.Close(); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]api.VMSpec{
		"on one GPU":             {Name: "b", Float: true, GPU: host.GPUName},
		"beyond the largest GPU": {Name: "b", Float: true, MemoryLimitBytes: 1 << 40},
	} {
		if _, err := h.Client.CreateVM(ctx, s); !errors.Is(err, api.ErrInvalid) && !errors.Is(err, api.ErrNoRoom) {
			t.Errorf("a guest that floats %s: %v", name, err)
		}
	}
	// A guest that does not float can't.
	plain := h.NewGuest(api.VMSpec{Name: "plain"})
	if _, err := plain.NewContext(ctx, driver.ContextOptions{Task: &driver.Task{MemoryBytes: 1}}); !errors.Is(err, abi.StatusNotSupported) {
		t.Errorf("a context that floats of a guest that doesn't: %v", err)
	}
}

// TestTasksReserved: what guests have that don't float is not granted, and the other way round.
func TestTasksReserved(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 2)
	h.NewGuest(api.VMSpec{Name: "pinned", GPU: "gpu1", MemoryLimitBytes: 700 * mib})
	dev := h.guest(api.VMSpec{Name: "a"})
	first := h.begin(dev, 600*mib)
	if got := h.gpuOf(first); got != 0 {
		t.Errorf("on GPU %d, where memory is reserved for another guest", got)
	}
	if _, err := h.Client.CreateVM(ctx, api.VMSpec{Name: "late", MemoryLimitBytes: 425 * mib}); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("a guest was promised what a task has: %v", err)
	}
	w := h.submit(h.guest(api.VMSpec{Name: "b"}), 424*mib+1)
	h.staysWaiting("b", abi.WaitMemory)
	cordoned := true
	if _, err := h.Client.UpdateGPU(ctx, "gpu0", api.GPUUpdate{Cordoned: &cordoned}); err != nil {
		t.Fatal(err)
	}
	if err := h.Client.ForceDeleteVM(ctx, "pinned"); err != nil {
		t.Fatal(err)
	}
	gpu, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	if got := h.gpuOf(gpu); got != 1 {
		t.Errorf("on GPU %d, which takes no guests", got)
	}
}

// oldBus is the bus of a device of version 1.2, as a driver sees it that knows no newer one.
type oldBus struct{ driver.Bus }

func (b oldBus) Read(offset uint32) (uint32, error) {
	if offset == abi.RegVersion {
		return uint32(abi.Version1_2), nil
	}
	return b.Bus.Read(offset)
}

// TestTasksBesideOldDrivers: a driver of version 1.2 in a guest that floats has its contexts on the
// guest's own GPU, as before, and what they have taken there is granted to nobody.
func TestTasksBesideOldDrivers(t *testing.T) {
	ctx := t.Context()
	h := newTaskHost(t, 2)
	_, dev := h.guestAndBus(api.VMSpec{Name: "old"}, func(b driver.Bus) driver.Bus { return oldBus{b} })
	if got := dev.Info().Version; got != abi.Version1_2 {
		t.Fatalf("version %v", got)
	}
	old := contextOf(t, dev)
	works(t, old)
	if _, err := old.Alloc(ctx, 500*mib); err != nil {
		t.Fatal(err)
	}
	if all := h.tasks(); len(all) != 0 {
		t.Errorf("tasks: %+v", all)
	}
	gpu := h.begin(h.guest(api.VMSpec{Name: "a"}), 600*mib)
	if got := fmt.Sprint("gpu", h.gpuOf(gpu)); got == h.VM("old").GPU {
		t.Errorf("placed on %s, where another guest has taken 500 MiB", got)
	}
	works(t, old)
}

// TestTasksInAnyOrder has guests begin and end contexts of all sizes at the same time, each of which
// takes nearly all that it asked for. None fails for what others have, whatever waits for what, and
// all that they compute is right.
func TestTasksInAnyOrder(t *testing.T) {
	const guests, workers, rounds, others = 4, 2, 6, 16 * mib // for modules and the like
	h := newTaskHost(t, 3)
	var wg sync.WaitGroup
	for i := range guests {
		dev := h.guest(api.VMSpec{Name: fmt.Sprint("guest", i), Weight: float64(1 + i)})
		for j := range workers {
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			wg.Go(func() {
				for range rounds {
					memory := (50 + random.Uint64N(900)) * mib
					gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: memory}})
					if err == nil {
						_, err = gpu.Alloc(t.Context(), memory-others)
					}
					if err == nil {
						err = runs(t, gpu)
					}
					if err == nil {
						err = gpu.Close()
					}
					if err != nil {
						t.Errorf("guest %d, a context of %d MiB: %v", i, memory/mib, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	h.Until("all to be given back", func() error {
		if all := h.tasks(); len(all) > 0 {
			return fmt.Errorf("tasks: %+v", all)
		}
		return nil
	})
	all, err := h.Client.Tasks(t.Context())
	if err != nil || all.Waits.Count != guests*workers*rounds {
		t.Errorf("%d tasks were placed, want %d (%v)", all.Waits.Count, guests*workers*rounds, err)
	}
}

// runs runs a kernel in a context and checks its result.
func runs(t *testing.T, gpu *driver.Context) error {
	k, _ := corpus.ByName("scan")
	l, err := workload.NewLoad(t.Context(), gpu, k.PTX(corpus.SM80), k.Case(corpus.Trivial, 1))
	if err != nil {
		return err
	}
	return l.Run(t.Context(), gpu.Own())
}
