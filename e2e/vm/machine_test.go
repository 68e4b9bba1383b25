package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// bootLimit bounds the time a VM takes to boot, or to do something, on a busy host.
const bootLimit = 15 * time.Minute

// timeout bounds the time until a condition holds that depends on what several VMs do in turn.
const timeout = 15 * time.Minute

// withTimeout makes a host's waits long enough for VMs without KVM on a busy machine.
func withTimeout(h *host.Host) *host.Host {
	h.Timeout = timeout
	return h
}

// describeLimit bounds the time that a VM takes to tell what a program in it is doing.
const describeLimit = 2 * time.Minute

// slowGPU is the speed of GPUs for guests without KVM.
var slowGPU = []string{"--warp-time", "500ns"}

// machine is a VM.
type machine struct {
	tb testing.TB
	h  *host.Host
	vm *qemu.VM
}

// boot starts a VM with these virtual GPUs and returns while it boots. The VM ends with the test.
func boot(tb testing.TB, h *host.Host, o qemu.Options, gpus ...api.VM) *machine {
	tb.Helper()
	o.IOMMU = true // without one vfio-pci can't be used, and there are no interrupts
	return bootWith(tb, h, o, gpus...)
}

// bootWith is boot with exactly the given options.
func bootWith(tb testing.TB, h *host.Host, o qemu.Options, gpus ...api.VM) *machine {
	tb.Helper()
	deps, err := qemu.Find("")
	if err != nil {
		tb.Fatal(err)
	}
	m := &machine{tb: tb, h: h}
	if o.Deps == (qemu.Deps{}) {
		o.Deps = deps
	}
	for i, g := range gpus {
		o.Devices = append(o.Devices, qemu.Device{ID: id(i), Socket: g.Socket})
	}
	if o.Name == "" {
		o.Name = gpus[0].Name
	}
	if m.vm, err = qemu.Start(context.Background(), o); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.vm.Close(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("console of VM %s:\n%s", o.Name, m.vm.Console())
		}
	})
	return m
}

// id returns QEMU's name of a VM's n-th virtual GPU.
func id(n int) string { return fmt.Sprintf("vgpu%d", n) }

// limited returns a context for one operation of the VM.
func (m *machine) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.tb.Context(), bootLimit)
}

// ready waits until the VM has booted.
func (m *machine) ready() {
	m.tb.Helper()
	ctx, cancel := m.limited()
	defer cancel()
	if err := m.vm.Ready(ctx); err != nil {
		m.tb.Fatal(err)
	}
}

// do runs an operation of the VM that must not fail.
func (m *machine) do(what func(context.Context) error) {
	m.tb.Helper()
	ctx, cancel := m.limited()
	defer cancel()
	if err := what(ctx); err != nil {
		m.tb.Fatal(err)
	}
}

// address returns a virtual GPU's PCI address by its name on QEMU's command line.
func (m *machine) address(id string) string {
	m.tb.Helper()
	type function struct {
		Bus      int    `json:"bus"`
		Slot     int    `json:"slot"`
		Function int    `json:"function"`
		ID       string `json:"qdev_id"`
		Bridge   struct {
			Devices []json.RawMessage `json:"devices"`
		} `json:"pci_bridge"`
	}
	var buses []struct {
		Devices []json.RawMessage `json:"devices"`
	}
	m.do(func(ctx context.Context) error { return m.vm.Execute(ctx, "query-pci", nil, &buses) })
	var all []json.RawMessage
	for _, bus := range buses {
		all = append(all, bus.Devices...)
	}
	for len(all) > 0 {
		var f function
		if err := json.Unmarshal(all[0], &f); err != nil {
			m.tb.Fatal(err)
		}
		if f.ID == id {
			return fmt.Sprintf("0000:%02x:%02x.%d", f.Bus, f.Slot, f.Function)
		}
		all = append(all[1:], f.Bridge.Devices...)
	}
	m.tb.Fatalf("QEMU has no PCI function %q", id)
	return ""
}

// worker is a program that works in a VM.
type worker struct {
	m    *machine
	name string
	p    *qemu.Process
	// printed is what it wrote to its standard error.
	printed output

	mu     sync.Mutex
	report workload.Report
	begun  chan struct{}
	done   chan struct{}
	err    error // once done is closed
}

// Kinds of work: kernels of about 50, 10 and 1 ms of GPU time, on slow GPUs. Often is medium with
// more of it between checks, which take a VM longer than the launches.
var (
	long   = []workload.Work{{Kernel: "matmul", Size: "small", Repeat: 2}, {Kernel: "scan", Size: "small", Repeat: 1}}
	medium = []workload.Work{{Kernel: "warp", Size: "small", Repeat: 2}, {Kernel: "reduce", Size: "small", Repeat: 2}}
	often  = []workload.Work{{Kernel: "warp", Size: "small", Repeat: 8}, {Kernel: "reduce", Size: "small", Repeat: 8}}
	short  = []workload.Work{{Kernel: "vecadd", Size: "trivial", Repeat: 8}, {Kernel: "nnlayer", Size: "trivial", Repeat: 4}}
)

// begin starts a program that works at kinds, always with more work waiting, on the virtual GPU at
// a PCI address, or the only one, and waits until it works.
func (m *machine) begin(name, address string, kinds []workload.Work) *worker {
	m.tb.Helper()
	p := workload.Plan{Name: name, PCI: address, Work: kinds, Workers: 5, Channels: 5, Seed: 1}
	if address == "" {
		// For preemptible launches a context allocates GPU memory at its first one, at any time,
		// which would look like memory that another guest left behind. A plugged device's guest has
		// such launches.
		p.Preempt = "off"
	}
	return m.run(p)
}

// run starts a program that executes the plan, through the agent.
func (m *machine) run(p workload.Plan) *worker {
	m.tb.Helper()
	p.Agent = true
	plan, err := json.Marshal(p)
	if err != nil {
		m.tb.Fatal(err)
	}
	w := &worker{m: m, name: p.Name, begun: make(chan struct{}), done: make(chan struct{})}
	if w.p, err = m.vm.Run(context.Background(), qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan, Stderr: &w.printed}); err != nil {
		m.tb.Fatal(err)
	}
	go func() {
		defer close(w.done)
		for line := range w.p.Lines() {
			w.take(line)
		}
		w.err = w.p.Wait()
	}()
	select {
	case <-w.begun:
	case <-w.done:
		m.tb.Fatalf("%s: %v", p.Name, w.err)
	case <-time.After(bootLimit):
		m.tb.Fatalf("%s does not begin\n%s", p.Name, w.describe())
	}
	return w
}

// describe describes what a program that stands still is doing, and what the agent knows of it. It
// ends the program, since that is how it dumps its goroutines.
func (w *worker) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), describeLimit)
	defer cancel()
	status, err := w.m.vm.Output(ctx, "/bin/vgpu-agent", "status")
	text := fmt.Sprintf("the agent's status in the VM of %s:\n%s\n%v\n", w.name, status, err)
	if err := w.p.Signal(unix.SIGQUIT); err != nil {
		return fmt.Sprintf("%s%s is not told to dump its goroutines: %v\n", text, w.name, err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	return fmt.Sprintf("%swhat %s printed:\n%s\n", text, w.name, w.printed.String())
}

// output is what a program printed to its standard error, up to a limit.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// maxOutput is more than the goroutines of a program take.
const maxOutput = 1 << 20

// Write implements [io.Writer]. It never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p[:min(len(p), maxOutput-o.b.Len())])
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (w *worker) take(line string) {
	var r workload.Report
	err := json.Unmarshal([]byte(line), &r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.report.Error = fmt.Sprintf("report %q: %v", line, err)
		return
	}
	w.report = r
	if r.Ready {
		close(w.begun)
	}
}

func (w *worker) last() workload.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}

// check fails the test if a result was wrong or the program can't continue.
func (w *worker) check() {
	w.m.tb.Helper()
	if r := w.last(); r.Wrong > 0 || r.Error != "" {
		w.m.tb.Fatalf("%s: %d of %d cases wrong: %s", w.name, r.Wrong, r.Cases, r.Error)
	}
}

// goesOn waits until more results have been checked, of work that began after the call.
func (w *worker) goesOn() {
	w.m.tb.Helper()
	// As many may have been under way before.
	goal := w.last().Cases + 6
	w.m.h.Describe = w.describe
	defer func() { w.m.h.Describe = nil }()
	w.m.h.Until("more results of "+w.name, func() error {
		w.check()
		select {
		case <-w.done:
			w.m.tb.Fatalf("%s has ended: %v", w.name, w.err)
		default:
		}
		if n := w.last().Cases; n < goal {
			return fmt.Errorf("%d of %d cases", n, goal)
		}
		return nil
	})
}

// end ends the program, which must succeed.
func (w *worker) end() {
	w.m.tb.Helper()
	if err := w.p.Signal(unix.SIGTERM); err != nil {
		w.m.tb.Fatal(err)
	}
	w.await()
	if w.err != nil {
		w.m.tb.Fatalf("%s: %v", w.name, w.err)
	}
	w.check()
}

// await waits for the program's end, successful or not.
func (w *worker) await() {
	w.m.tb.Helper()
	select {
	case <-w.done:
	case <-time.After(bootLimit):
		w.m.tb.Fatalf("%s does not end", w.name)
	}
}

// awaitLost waits for the end of a program whose VM or virtual GPU has gone: that is an error, and
// until then all its results were right.
func (w *worker) awaitLost() {
	w.m.tb.Helper()
	w.await()
	if w.err == nil {
		w.m.tb.Errorf("%s ended well, without its virtual GPU", w.name)
	}
	if r := w.last(); r.Wrong > 0 {
		w.m.tb.Errorf("%s: %d of %d cases wrong: %s", w.name, r.Wrong, r.Cases, r.Error)
	}
}

// works has a guest work for a while.
func (m *machine) works(address string) {
	m.tb.Helper()
	w := m.begin("guest", address, short)
	w.goesOn()
	w.end()
}
