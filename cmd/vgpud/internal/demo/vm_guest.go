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

// vmWarpTime is the GPU's speed where the guests are VMs: a fifth of the usual,
// so that VMs whose instructions QEMU translates, three on two processors, still
// have work for it all the time.
const vmWarpTime = time.Microsecond

// vmEndLimit is how long a VM's program may take to end when told to, and the VM
// then to power itself off: minutes, where QEMU translates its instructions on a
// machine that does much else.
const vmEndLimit = 15 * time.Minute

// vmGuest is a guest in a VM. Its console goes to a file of its own.
type vmGuest struct {
	name   string
	log    *os.File
	vm     *qemu.VM
	cancel context.CancelFunc // ends what waits for the VM
	done   chan struct{}
	err    error // set when done is closed

	mu      sync.Mutex
	program *qemu.Process // nil until it runs
}

// startVM starts a guest in a VM, which is told its plan when it has booted, and
// follows its reports.
func (d *demo) startVM(m *member) (guest, error) {
	p := m.Plan // names no device: the VM has one
	p.Agent = true
	p.Work = slices.Clone(p.Work)
	for i := range p.Work {
		// Slower kernels: results are to be checked about as often.
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
		IOMMU:   true, // or there are no interrupts
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
		if g.err = d.say("guest %s: its VM has booted in %.1f s", m.Name, time.Since(begin).Seconds()); g.err != nil {
			return
		}
		g.err = g.work(ctx, m, plan)
	})
	return g, nil
}

// work runs the guest's program in the VM until it ends.
func (g *vmGuest) work(ctx context.Context, m *member, plan []byte) error {
	p, err := g.vm.Run(ctx, qemu.Command{Args: []string{"/bin/demoguest"}, Stdin: plan})
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.program = p
	g.mu.Unlock()
	for line := range p.Lines() {
		m.take([]byte(line))
	}
	return p.Wait()
}

func (g *vmGuest) ended() <-chan struct{} { return g.done }

func (g *vmGuest) why() error {
	return fmt.Errorf("guest %s ended: %v%s", g.name, g.err, child.Tail(g.log.Name()))
}

// end has the program end, and then the VM power itself off.
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

// endProgram has the program end well; a VM that is still booting has none.
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
		return fmt.Errorf("guest %s: its program does not end within %v", g.name, vmEndLimit)
	}
	if g.err != nil {
		return g.why()
	}
	return nil
}
