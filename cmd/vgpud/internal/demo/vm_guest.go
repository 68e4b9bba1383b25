package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/child"
	"vgpud/vfio/qemu"
)

// vmWarpTime is the GPU's speed if the guests are VMs: a fifth of the default, so that three VMs
// whose instructions QEMU translates on two processors keep the GPU busy.
const vmWarpTime = time.Microsecond

// vmEndLimit bounds the time in which a VM's program ends when asked to, and the VM then powers
// off: minutes, if QEMU translates its instructions on a busy machine.
const vmEndLimit = 15 * time.Minute

// vmGuest is a guest in a VM. Its console goes to a file of its own.
type vmGuest struct {
	name   string
	log    *os.File
	vm     *qemu.VM
	cancel context.CancelFunc // ends the waits for the VM
	done   chan struct{}
	err    error // set when done is closed

	mu      sync.Mutex
	program *qemu.Process // nil until it runs
}

// startVM starts a guest in a VM, which gets its plan when it has booted, and follows its reports.
func (d *demo) startVM(m *guest) (instance, error) {
	p := m.Plan // names no device: the VM has one
	p.Agent = true
	p.Work = slices.Clone(p.Work)
	for i := range p.Work {
		// The kernels are slower: results should be checked about as often.
		p.Work[i].Repeat = max(p.Work[i].Repeat/2, 1)
	}
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.dir, "guest-"+m.Name+".log"))
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	vm, err := qemu.Start(ctx, qemu.Options{
		Deps: d.deps, Name: m.Name, Log: log,
		Devices: []qemu.Device{{ID: "vgpu0", Socket: m.socket}},
		IOMMU:   true, // needed for interrupts
	})
	if err != nil {
		cancel()
		return nil, errors.Join(err, log.Close())
	}
	g := &vmGuest{name: m.Name, log: log, vm: vm, cancel: cancel, done: make(chan struct{})}
	d.readers.Go(func() {
		defer close(g.done)
		if g.err = vm.Ready(ctx); g.err != nil {
			return
		}
		if g.err = d.progress("guest %s: its VM has booted in %.1f s", m.Name, time.Since(begin).Seconds()); g.err != nil {
			return
		}
		g.err = g.work(ctx, m, plan)
	})
	return g, nil
}

// work runs the guest's program in the VM until it ends.
func (g *vmGuest) work(ctx context.Context, m *guest, plan []byte) error {
	p, err := g.vm.Run(ctx, qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan})
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.program = p
	g.mu.Unlock()
	for line := range p.Lines() {
		m.addReport([]byte(line))
	}
	return p.Wait()
}

func (g *vmGuest) ended() <-chan struct{} { return g.done }

func (g *vmGuest) endError() error {
	return fmt.Errorf("guest %s ended: %v%s", g.name, g.err, child.Tail(g.log.Name()))
}

// end ends the program and then powers the VM off.
func (g *vmGuest) end() error {
	err := g.endProgram()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), vmEndLimit)
		err = g.vm.PowerOff(ctx)
		cancel()
	}
	g.cancel()
	<-g.done
	return errors.Join(err, g.vm.Close(), g.log.Close())
}

// endProgram ends the program in order. A VM that is still booting has none.
func (g *vmGuest) endProgram() error {
	g.mu.Lock()
	p := g.program
	g.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("guest %s: %w", g.name, err)
	}
	late := time.NewTimer(vmEndLimit)
	defer late.Stop()
	select {
	case <-g.done:
	case <-late.C:
		return fmt.Errorf("guest %s: its program did not end within %v", g.name, vmEndLimit)
	}
	if g.err != nil {
		return g.endError()
	}
	return nil
}
