package system

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload/card"
	"vgpud/e2e/host"
	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

const (
	// cardMode is the mode of this binary in which it stands in for a network card.
	cardMode = "card"
	// numberVariable has the event kernel's number, eventsVariable how many events to launch.
	numberVariable = "VGPUD_SYSTEM_TEST_NUMBER"
	eventsVariable = "VGPUD_SYSTEM_TEST_EVENTS"
)

// runCard is the card's process. It says how far it is after every few events.
func runCard() int {
	err := func() error {
		area, err := card.Inherited()
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(os.Getenv(numberVariable))
		if err != nil {
			return err
		}
		events, err := strconv.Atoi(os.Getenv(eventsVariable))
		if err != nil {
			return err
		}
		var c *card.Card
		for {
			if c, err = card.New(area, n, func() { card.KickHost(area) }); !errors.Is(err, eventqueue.ErrRinging) {
				break
			}
			card.KickHost(area) // the one before may have died before it did
			runtime.Gosched()
		}
		if err != nil {
			return err
		}
		for done := 0; done < events; done += 10 {
			if err := c.Run(context.Background(), 10); err != nil {
				return err
			}
			fmt.Println(atIt, c.Answered())
		}
		return nil
	}()
	fmt.Println("ended:", err)
	if err != nil {
		return 1
	}
	return 0
}

// cardProcess is a card that `vgpuctl card` runs.
type cardProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// newCard starts a card that launches an event kernel of a guest.
func newCard(t *testing.T, h *host.Host, vm string, number, events int) *cardProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := host.Programs()
	if err != nil {
		t.Fatal(err)
	}
	p := &cardProcess{t: t, cmd: exec.Command(filepath.Join(bin, "vgpuctl"), "--socket", h.Config.Socket, "card", vm, "--", self)}
	p.cmd.Env = append(os.Environ(), modeVariable+"="+cardMode, numberVariable+"="+strconv.Itoa(number), eventsVariable+"="+strconv.Itoa(events))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// goesOn waits for the card's next line about events that were answered.
func (p *cardProcess) goesOn() {
	p.t.Helper()
	if !p.lines.Scan() || !strings.HasPrefix(p.lines.Text(), atIt) {
		p.t.Fatalf("the card says %q (%v)", p.lines.Text(), p.lines.Err())
	}
}

// end waits for the card's end, and returns the last thing that it said.
func (p *cardProcess) end() string {
	last := ""
	for p.lines.Scan() {
		last = p.lines.Text()
	}
	_ = p.cmd.Wait()
	return last
}

// kill kills the card and vgpuctl, which runs it. The card's own death goes with vgpuctl's.
func (p *cardProcess) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		for p.lines.Scan() {
		}
		_ = p.cmd.Wait()
	}
}

// pinger is a guest's program with two event kernels: one for itself, and one for a card.
type pinger struct {
	t     *testing.T
	dev   *driver.Device
	gpu   *driver.Context
	own   *driver.EventKernel
	other *driver.EventKernel
	card  *card.Card
}

func newPinger(t *testing.T, dev *driver.Device) *pinger {
	t.Helper()
	p := &pinger{t: t, dev: dev, gpu: contextOf(t, dev)}
	p.register()
	return p
}

// register registers both kernels in the context, and takes the first.
func (p *pinger) register() {
	p.t.Helper()
	var err error
	if p.own, err = card.Register(p.t.Context(), p.gpu); err != nil {
		p.t.Fatal(err)
	}
	if p.other, err = card.Register(p.t.Context(), p.gpu); err != nil {
		p.t.Fatal(err)
	}
	area, err := p.dev.Events()
	if err != nil {
		p.t.Fatal(err)
	}
	p.card, err = card.New(area, p.own.Number(), func() {
		if err := p.dev.KickEvents(p.own.Number()); err != nil {
			p.t.Error(err)
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pinger) pings(events int) {
	p.t.Helper()
	if err := p.card.Run(p.t.Context(), events); err != nil {
		p.t.Fatal(err)
	}
}

// TestEvents has a program in a guest and a card launch events at once, beside a neighbour that
// computes: each answer is checked. Each of them is killed while the other goes on, and so is the
// daemon; a card's successor goes on where it was.
func TestEvents(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	by := newBystander(t, h)
	guest := newPinger(t, h.NewGuest(api.VMSpec{Name: "guest"}))
	c := newCard(t, h, "guest", guest.other.Number(), 1<<30)
	c.goesOn()
	guest.pings(200)
	c.goesOn()
	by.goesOn()

	if g, err := h.Client.GPUs(ctx); err != nil || len(g) != 1 || !g[0].EventKernels {
		t.Errorf("the GPU that launches them is shown as %+v, %v", g, err)
	}
	h.Until("the event kernels, as an operator sees them", func() error {
		all, err := h.Client.EventKernels(ctx)
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%+v, %v", all, err)
		}
		for _, k := range all {
			if k.VM != "guest" || k.Kernel != "udp_ping" || k.Tier != "engine" || k.Events == 0 || k.Dropped != 0 || k.P50Seconds <= 0 || k.P99Seconds < k.P50Seconds {
				return fmt.Errorf("%+v", k)
			}
		}
		if v := h.VM("guest"); v.Events < all[0].Events+all[1].Events {
			return fmt.Errorf("%d events in all, of %+v", v.Events, all)
		}
		return nil
	})

	t.Log("the card dies")
	c.kill()
	guest.pings(50)
	c = newCard(t, h, "guest", guest.other.Number(), 1<<30)
	c.goesOn()

	t.Log("the daemon dies")
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	guest.pings(50)
	c.goesOn()
	h.StartDaemon()
	guest.pings(50)
	c.goesOn()

	t.Log("the executor dies")
	executors, err := proc.Children(h.VM("guest").PID)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range executors { // one of them may be a spare
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
	if said := c.end(); !strings.Contains(said, "failed") && !strings.Contains(said, "unregistered") {
		t.Errorf("the card of a dead executor: %q", said)
	}
	if err := guest.card.Run(ctx, 1<<30); !errors.Is(err, eventqueue.ErrNotRegistered) {
		t.Errorf("the program of a dead executor: %v", err)
	}
	by.goesOn()
	if err := guest.gpu.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	guest.register()
	c = newCard(t, h, "guest", guest.other.Number(), 100)
	guest.pings(50)
	if said := c.end(); said != "ended: <nil>" {
		t.Errorf("the card says %q", said)
	}
	for _, k := range []*driver.EventKernel{guest.own, guest.other} {
		n, err := k.Counts(ctx)
		if err != nil || n.Dropped != 0 || n.Ended == 0 {
			t.Errorf("counts %+v, %v", n, err)
		}
		if err := k.Close(ctx); err != nil {
			t.Error(err)
		}
	}

	t.Log("the guest dies")
	guest.register()
	c = newCard(t, h, "guest", guest.other.Number(), 1<<30)
	c.goesOn()
	if err := guest.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if said := c.end(); !strings.HasPrefix(said, "ended: ") || strings.Contains(said, "answered") {
		t.Errorf("the card of a guest that is gone: %q", said)
	}
	by.goesOn()
}
