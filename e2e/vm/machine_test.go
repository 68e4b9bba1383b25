package vm

import (
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

// bootLimit is how long a VM may take to boot, or to do what it is asked for, on a
// machine that does much else.
const bootLimit = 15 * time.Minute

// patience is how long a condition may take to come about that depends on what VMs
// do, one after the other.
const patience = 15 * time.Minute

// patient has a host's tests wait as VMs without KVM need it on a busy machine.
func patient(h *host.Host) *host.Host {
	h.Patience = patience
	return h
}

// slow is the speed of GPUs for guests without KVM.
var slow = []string{"--warp-time", "500ns"}

// machine is a VM.
type machine struct {
	tb testing.TB
	h  *host.Host
	vm *qemu.VM
}

// boot starts a VM with these virtual GPUs, which has begun to boot when it
// returns. It ends with the test.
func boot(tb testing.TB, h *host.Host, o qemu.Options, gpus ...api.VM) *machine {
	tb.Helper()
	o.IOMMU = true // or vfio-pci can't be had, and there are no interrupts
	return bootWith(tb, h, o, gpus...)
}

// bootWith is boot with no more than the options say.
func bootWith(tb testing.TB, h *host.Host, o qemu.Options, gpus ...api.VM) *machine {
	tb.Helper()
	deps, err := qemu.Find("")
	if err != nil {
		tb.Fatal(err)
	}
	m := &machine{tb: tb, h: h}
	o.Deps = deps
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

// id is QEMU's name of a VM's n-th virtual GPU.
func id(n int) string { return fmt.Sprintf("vgpu%d", n) }

// limited is a context for one thing that a VM is to do.
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

// do has the VM do something that must not fail.
func (m *machine) do(what func(context.Context) error) {
	m.tb.Helper()
	ctx, cancel := m.limited()
	defer cancel()
	if err := what(ctx); err != nil {
		m.tb.Fatal(err)
	}
}

// address finds a virtual GPU's PCI address by its name on QEMU's command line.
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

// worker is a program at work in a VM.
type worker struct {
	m    *machine
	name string
	p    *qemu.Process

	mu     sync.Mutex
	report workload.Report
	begun  chan struct{}
	done   chan struct{}
	err    error // once done is closed
}

// Kinds of work: kernels of about 50, 10 and 1 ms of GPU time, on slow GPUs. Often is
// medium, with more of it between checks, which take a VM more time than the launches.
var (
	long   = []workload.Work{{Kernel: "matmul", Size: "small", Repeat: 2}, {Kernel: "scan", Size: "small", Repeat: 1}}
	medium = []workload.Work{{Kernel: "warp", Size: "small", Repeat: 2}, {Kernel: "reduce", Size: "small", Repeat: 2}}
	often  = []workload.Work{{Kernel: "warp", Size: "small", Repeat: 8}, {Kernel: "reduce", Size: "small", Repeat: 8}}
	short  = []workload.Work{{Kernel: "vecadd", Size: "trivial", Repeat: 8}, {Kernel: "nnlayer", Size: "trivial", Repeat: 4}}
)

// begin starts a program that works at kinds, always with more waiting, on the
// virtual GPU at a PCI address, or the only one, and waits until it is at it.
func (m *machine) begin(name, address string, kinds []workload.Work) *worker {
	m.tb.Helper()
	p := workload.Plan{Name: name, PCI: address, Work: kinds, Workers: 5, Channels: 5, Seed: 1}
	if address == "" {
		// With launches that can leave, a context takes GPU memory for them when the first comes, whenever that is: what
		// another guest left behind could not be told from it. A plugged device's guest has them.
		p.Preempt = "off"
	}
	return m.run(p)
}

// run starts a program that does what the plan says, by way of the agent.
func (m *machine) run(p workload.Plan) *worker {
	m.tb.Helper()
	p.Agent = true
	plan, err := json.Marshal(p)
	if err != nil {
		m.tb.Fatal(err)
	}
	w := &worker{m: m, name: p.Name, begun: make(chan struct{}), done: make(chan struct{})}
	if w.p, err = m.vm.Run(context.Background(), qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan}); err != nil {
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
		m.tb.Fatalf("%s does not begin", p.Name)
	}
	return w
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

// right fails the test where a result was wrong, or the program can't go on.
func (w *worker) right() {
	w.m.tb.Helper()
	if r := w.last(); r.Wrong > 0 || r.Error != "" {
		w.m.tb.Fatalf("%s: %d of %d cases wrong: %s", w.name, r.Wrong, r.Cases, r.Error)
	}
}

// goesOn waits until more results have been checked, of work begun after the
// call.
func (w *worker) goesOn() {
	w.m.tb.Helper()
	// As many may have been under way already.
	goal := w.last().Cases + 6
	w.m.h.Until("more results of "+w.name, func() error {
		w.right()
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

// end tells the program to end, which must have had no trouble.
func (w *worker) end() {
	w.m.tb.Helper()
	if err := w.p.Signal(unix.SIGTERM); err != nil {
		w.m.tb.Fatal(err)
	}
	w.await()
	if w.err != nil {
		w.m.tb.Fatalf("%s: %v", w.name, w.err)
	}
	w.right()
}

// await waits for the program's end, whatever it is.
func (w *worker) await() {
	w.m.tb.Helper()
	select {
	case <-w.done:
	case <-time.After(bootLimit):
		w.m.tb.Fatalf("%s does not end", w.name)
	}
}

// lost waits for the end of a program whose VM or virtual GPU has gone: that is
// an error, and until then all its results were right.
func (w *worker) lost() {
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
