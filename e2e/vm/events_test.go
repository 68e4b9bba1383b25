package vm

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/cmd/vgpud/workload/card"
	"vgpud/vfio/qemu"
)

// eventsInVM is how many events of 32 packets a program in a VM, or a card, launches.
const eventsInVM = 20

// pinger is a program in a VM with event kernels.
type pinger struct {
	m      *machine
	p      *qemu.Process
	number int // of the event kernel that it leaves to a card
}

// launchesEvents has a program launch events through vfio-pci, whose descriptors reach all of the
// device: a card gets none.
func (m *machine) launchesEvents() {
	m.tb.Helper()
	g := m.startPinger()
	g.launched(eventsInVM, 0)
	ctx, cancel := m.limited()
	defer cancel()
	if _, err := m.vm.Output(ctx, "/bin/vgpu-agent", "card", "--", "/bin/demoguest"); err == nil || !strings.Contains(err.Error(), "no descriptor of its own") {
		m.tb.Errorf("a card of a device that is open through vfio-pci: %v", err)
	}
	g.end()
}

// startPinger starts the program, and waits until its own events are answered.
func (m *machine) startPinger() *pinger {
	m.tb.Helper()
	plan := workload.Plan{Name: "pinger", Agent: true, Events: &workload.Events{Launch: eventsInVM}}
	p, r := m.events(plan, "/bin/demoguest")
	return &pinger{m, p, r.Number}
}

// events runs a program with a plan of events, and waits for its report.
func (m *machine) events(plan workload.Plan, args ...string) (*qemu.Process, workload.EventsReport) {
	m.tb.Helper()
	text, err := json.Marshal(plan)
	if err != nil {
		m.tb.Fatal(err)
	}
	ctx, cancel := m.limited()
	m.tb.Cleanup(cancel)
	p, err := m.vm.Run(ctx, qemu.Command{Args: args, Stdin: text})
	if err != nil {
		m.tb.Fatal(err)
	}
	var r workload.EventsReport
	next, stop := iter.Pull(p.Lines())
	defer stop()
	line, ok := next()
	if !ok {
		m.tb.Fatalf("%s ends: %v", plan.Name, p.Wait())
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		m.tb.Fatalf("report %q: %v", line, err)
	}
	if r.Packets != eventsInVM*card.Packets {
		m.tb.Errorf("%s had %d answers, want %d", plan.Name, r.Packets, eventsInVM*card.Packets)
	}
	return p, r
}

// card has a card in the VM launch the other kernel, with the event area that the agent hands out.
func (g *pinger) card() {
	g.m.tb.Helper()
	plan := workload.Plan{Name: "card", Events: &workload.Events{Launch: eventsInVM, Card: &g.number}}
	p, _ := g.m.events(plan, "/bin/vgpu-agent", "card", "--", "/bin/demoguest")
	if err := p.Wait(); err != nil {
		g.m.tb.Error(err)
	}
}

// launched waits until the host counts the events of both kernels.
func (g *pinger) launched(own, other uint64) {
	g.m.tb.Helper()
	g.m.h.Until("the host to count the events", func() error {
		all, err := g.m.h.Client.EventKernels(g.m.tb.Context())
		if err != nil {
			return err
		}
		if len(all) != 2 || all[0].Events != own || all[1].Events != other || all[0].Dropped+all[1].Dropped > 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// end ends the program, with its registrations.
func (g *pinger) end() {
	g.m.tb.Helper()
	if err := g.p.Signal(unix.SIGTERM); err != nil {
		g.m.tb.Fatal(err)
	}
	if err := g.p.Wait(); err != nil {
		g.m.tb.Error(err)
	}
}
