package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/guestagent/agent"
	"vgpud/mediator/api"
	"vgpud/vfio/qemu"
)

// out runs a program in the VM, which must succeed, and returns its output.
func (m *machine) out(args ...string) (text string) {
	m.tb.Helper()
	m.do(func(ctx context.Context) (err error) { text, err = m.vm.Output(ctx, args...); return err })
	return text
}

// ask runs a command of the agent in the VM and decodes its JSON output.
func (m *machine) ask(answer any, args ...string) {
	m.tb.Helper()
	text := m.out(append(append([]string{"/bin/vgpu-agent"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		m.tb.Fatalf("%v: %v\n%s", args, err, text)
	}
}

// check runs the agent's check in the VM.
func (m *machine) check(args ...string) (r []agent.CheckResult) {
	m.tb.Helper()
	m.ask(&r, append([]string{"check"}, args...)...)
	return r
}

// prepared waits until the agent has prepared n devices, and returns them. A device that is plugged
// while the guest's kernel still releases another may find no room at first: the agent tries it
// again.
func (m *machine) prepared(n int) (all []agent.Device) {
	m.tb.Helper()
	m.h.Until(fmt.Sprintf("%d prepared devices", n), func() error {
		all = nil
		ctx, cancel := m.limited()
		defer cancel()
		text, err := m.vm.Output(ctx, "/bin/vgpu-agent", "status", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &all)
		}
		if err != nil {
			return err
		}
		if len(all) != n {
			return fmt.Errorf("%d devices", len(all))
		}
		for _, d := range all {
			if d.State == agent.StatePreparing || d.State == agent.StateFailed {
				return fmt.Errorf("%s: %s: %s", d.Address, d.State, d.Problem)
			}
		}
		return nil
	})
	return all
}

// TestAgent has the agent find a virtual GPU, check it by vfio-pci and by polling, share it, lose a
// second one, and clear what a program leaves. A program launches events; a card can't.
func TestAgent(t *testing.T) {
	h := withTimeout(host.Start(t, "dfq", slowGPU...))
	m := boot(t, h, qemu.Options{SparePorts: 1}, h.NewVM(api.VMSpec{Name: "vm1"}))
	m.ready()
	if d := m.prepared(1)[0]; d.State != agent.StateReady || d.Driver != "vfio-pci" || d.Check == nil || !d.Check.OK || d.Check.Vectors != 32 {
		t.Errorf("prepared: %+v, check: %+v", d, d.Check)
	}
	for _, c := range []struct {
		way, access string
		vectors     int
	}{{"--access=polling", "polling", 0}, {"--access=vfio", "vfio", 32}, {"--shared", "agent", 2}} {
		r := m.check(c.way, "-n", "20", "--parts")
		if len(r) != 1 || !r[0].OK || r[0].Access != c.access || r[0].Vectors != c.vectors {
			t.Errorf("check by %s: %+v", c.access, r)
		}
		for _, p := range r[0].Parts {
			t.Logf("%-8s %-14s p50 %-12v p99 %v", c.access, p.Name, p.P50, p.P99)
		}
		for _, l := range r[0].Launches {
			t.Logf("%-8s launch, by %-9s after %-4v p50 %-12v p99 %v", c.access, l.Wait, l.Pause, l.P50, l.P99)
		}
	}
	m.launchesEvents()
	// The kernel waits for programs that have a device open by vfio-pci: they must close it.
	m.unplugged("--access=vfio", "--shared")
	m.killed()
}

// TestAgentWithoutIOMMU has a guest in which vfio-pci can't be used: it polls. There a card in the
// guest launches event kernels, too.
func TestAgentWithoutIOMMU(t *testing.T) {
	h := withTimeout(host.Start(t, "dfq", slowGPU...))
	m := bootWith(t, h, qemu.Options{SparePorts: 1}, h.NewVM(api.VMSpec{Name: "vm1"}))
	m.ready()
	d := m.prepared(1)[0]
	if d.State != agent.StatePolling || d.Check == nil || !d.Check.OK || !strings.Contains(d.Problem, "no IOMMU") {
		t.Errorf("prepared: %+v, check: %+v", d, d.Check)
	}
	if r := m.check("--access", "polling"); !r[0].OK {
		t.Errorf("check: %+v", r)
	}
	g := m.startPinger()
	g.card()
	g.launched(eventsInVM, eventsInVM)
	g.end()
	// A program that polls gets an error when its device goes away.
	m.unplugged("--access=polling", "--shared")
}

// unplugged unplugs a second device while programs use it in these ways.
func (m *machine) unplugged(ways ...string) {
	m.tb.Helper()
	second := m.h.NewVM(api.VMSpec{Name: "second"})
	for _, way := range ways {
		m.do(func(ctx context.Context) error {
			return m.vm.Plug(ctx, qemu.Device{ID: "second", Socket: second.Socket, Bus: qemu.SparePort(0)})
		})
		m.prepared(2)
		p := m.busy(way, m.address("second"))
		m.do(func(ctx context.Context) error { return m.vm.Unplug(ctx, "second") })
		m.awaitUnplugged(p)
		m.prepared(1)
	}
	if r := m.check(); !r[0].OK {
		m.tb.Errorf("the device that stays: %+v", r)
	}
}

// killed kills one of two programs that share a device: the agent clears what it left, and the
// other goes on.
func (m *machine) killed() {
	m.tb.Helper()
	first, second := m.busy("--shared", "0000:00:10.0"), m.busy("--shared", "0000:00:10.0")
	tenants := func(n int) {
		m.tb.Helper()
		m.h.Until(fmt.Sprintf("the agent to have %d tenants", n), func() error {
			if d := m.prepared(1)[0]; len(d.Tenants) != n {
				return fmt.Errorf("tenants: %+v", d.Tenants)
			}
			return nil
		})
	}
	tenants(2) // which shows that they have their parts
	contexts := func(n int) {
		m.tb.Helper()
		m.h.Until(fmt.Sprintf("the host to have %d contexts", n), func() error {
			if v := m.h.VM("vm1"); v.Contexts != n {
				return fmt.Errorf("%d contexts", v.Contexts)
			}
			return nil
		})
	}
	contexts(2)
	if err := first.Signal(unix.SIGKILL); err != nil {
		m.tb.Fatal(err)
	}
	contexts(1)
	if r := m.check("--shared"); !r[0].OK {
		m.tb.Errorf("beside the other: %+v", r)
	}
	if err := second.Signal(unix.SIGTERM); err != nil {
		m.tb.Fatal(err)
	}
	contexts(0)
	tenants(0)
}

// busy starts a check that doesn't end by itself, and waits until it launches.
func (m *machine) busy(way, address string) *qemu.Process {
	m.tb.Helper()
	before := m.kernels()
	args := []string{"/bin/vgpu-agent", "check", way, "-n", "1000000", "--timeout", "1h"}
	if address != "" {
		args = append(args, address)
	}
	p, err := m.vm.Run(context.Background(), qemu.Command{Args: args})
	if err != nil {
		m.tb.Fatal(err)
	}
	m.h.Until("launches", func() error {
		if n := m.kernels() - before; n < 50 {
			return fmt.Errorf("%d kernels", n)
		}
		return nil
	})
	return p
}

// kernels returns how many kernels all guests have run.
func (m *machine) kernels() (n uint64) {
	m.tb.Helper()
	all, err := m.h.Client.VMs(m.tb.Context())
	if err != nil {
		m.tb.Fatal(err)
	}
	for _, v := range all {
		n += v.Kernels
	}
	return n
}

// awaitUnplugged waits for the end of a check whose device was unplugged, which reports that.
func (m *machine) awaitUnplugged(p *qemu.Process) {
	m.tb.Helper()
	var said strings.Builder
	ended := make(chan error, 1)
	go func() {
		for line := range p.Lines() {
			said.WriteString(line + "\n")
		}
		ended <- p.Wait()
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(said.String(), "the virtual GPU is gone") {
			m.tb.Errorf("a check without its device ended with %v and said:\n%s", err, said.String())
		}
	case <-time.After(bootLimit):
		m.tb.Fatal("a check without its device does not end")
	}
}
