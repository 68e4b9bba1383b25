package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/allot"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu/abi"
)

// dial gets a part of the guest's device.
func (g *guest) dial(t testing.TB, ask allot.Ask) (*driver.AgentBus, *driver.Device) {
	t.Helper()
	bus, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Ask: ask})
	check(t, err)
	dev, err := driver.Open(t.Context(), bus)
	check(t, err)
	return bus, dev
}

// compute runs the check on a device, and copies memory.
func compute(ctx context.Context, bus driver.Bus, dev *driver.Device) error {
	if r, err := agent.Check(ctx, bus, dev, agent.CheckOptions{Count: 50}); err != nil || !r.OK {
		return errors.Join(err, errors.New(r.Error))
	}
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		return err
	}
	in, out := bytes.Repeat([]byte{byte(bus.(*driver.AgentBus).Allotment().Contexts[0])}, 300<<10), make([]byte, 300<<10)
	p, err := gpu.Alloc(ctx, uint64(len(in)))
	if err == nil {
		err = errors.Join(gpu.CopyIn(ctx, p, in), gpu.CopyOut(ctx, out, p))
	}
	if err == nil && !bytes.Equal(in, out) {
		err = errors.New("memory came back changed")
	}
	return errors.Join(err, gpu.Close())
}

func TestTenantsShare(t *testing.T) {
	t.Run("device", func(t *testing.T) { testTenantsShare(t, agent.Options{}, false) })
	t.Run("old device", func(t *testing.T) {
		testTenantsShare(t, agent.Options{Open: func(context.Context, string) (agent.Lender, error) {
			h, err := drivertest.NewHost(drivertest.Options{Version1_0: true, Features: abi.AllFeatures, Kernels: kernels(0)})
			if err != nil {
				return nil, err
			}
			return drivertest.NewShareable(h)
		}}, true)
	})
}

func testTenantsShare(t *testing.T, o agent.Options, old bool) {
	g := start(t, kernels(0), o, address)
	ask := allot.Ask{Channels: 3}
	busA, devA := g.dial(t, ask)
	busB, devB := g.dial(t, ask)
	a, b := busA.Allotment(), busB.Allotment()
	if a.Contexts[0] == b.Contexts[0] || a.Channels[0] == b.Channels[0] || a.Shared == b.Shared {
		t.Errorf("the same for two: %+v, %+v", a, b)
	}
	if apart := a.Rings.Size > 0 && a.Rings.Offset+a.Rings.Size <= b.Rings.Offset; apart == old || old && (a.Rings != b.Rings) {
		t.Errorf("rings of an old device %v: %+v, %+v", old, a.Rings, b.Rings)
	}
	if info := devA.Info(); info.Contexts != 1 || info.Channels != 3 || info.Vectors != 2 {
		t.Errorf("Info = %+v", info)
	}
	var both sync.WaitGroup
	for _, d := range []struct {
		bus *driver.AgentBus
		dev *driver.Device
	}{{busA, devA}, {busB, devB}} {
		both.Go(func() {
			for range 3 {
				if err := compute(t.Context(), d.bus, d.dev); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	if all := g.Devices()[0].Tenants; len(all) != 2 || all[0].PID != os.Getpid() {
		t.Errorf("tenants: %+v", all)
	}
	if _, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Ask: ask}); err == nil || !strings.Contains(err.Error(), "no more to give: 3 channels") {
		t.Errorf("a third of 3 of 8 channels: %v", err)
	}
	check(t, devA.Close())
	_, devC := g.dial(t, ask)
	check(t, devB.Close())
	check(t, devC.Close())
	g.log.await(t, `msg="program gone"`)
}

// TestMain is a tenant's program if a test starts it as one.
func TestMain(m *testing.M) {
	socket := os.Getenv("VGPU_AGENT_TEST_SOCKET")
	if socket == "" {
		os.Exit(m.Run())
	}
	if err := tenant(socket); err != nil {
		_, _ = io.WriteString(os.Stdout, err.Error()+"\n")
		os.Exit(1)
	}
}

// tenant computes, reports that, and then keeps a context open until it is killed.
func tenant(socket string) error {
	ctx := context.Background()
	bus, err := driver.DialAgent(ctx, driver.AgentOptions{Socket: socket, Ask: allot.Ask{Channels: 4}})
	if err != nil {
		return err
	}
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		return err
	}
	if err := compute(ctx, bus, dev); err != nil {
		return err
	}
	if _, err := dev.NewContext(ctx, driver.ContextOptions{}); err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, "computed\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestProcesses has two programs share a device; both are killed while they use it.
func TestProcesses(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	self, err := os.Executable()
	check(t, err)
	bus, dev := g.dial(t, allot.Ask{Channels: 2}) // keeps the device open
	for range 2 {
		var programs []*exec.Cmd
		for range 1 {
			c := exec.Command(self)
			c.Env = append(os.Environ(), "VGPU_AGENT_TEST_SOCKET="+g.socket)
			in, err := c.StdinPipe()
			check(t, err)
			out, err := c.StdoutPipe()
			check(t, err)
			check(t, c.Start())
			said := make([]byte, 100)
			n, err := out.Read(said)
			if err != nil || string(said[:n]) != "computed\n" {
				t.Errorf("a program said %q, %v", said[:n], err)
			}
			defer func() { _ = in.Close() }()
			programs = append(programs, c)
		}
		check(t, compute(t.Context(), bus, dev))
		for _, c := range programs {
			check(t, c.Process.Kill())
			if err := c.Wait(); err == nil {
				t.Error("killed, and ended well")
			}
		}
		g.log.await(t, "contexts_left=1")
		g.settled(t, 1)
	}
	check(t, compute(t.Context(), bus, dev))
	check(t, dev.Close())
	g.settled(t, 0)
}

// settled waits until there are n tenants.
func (g *guest) settled(t testing.TB, n int) {
	t.Helper()
	late := time.NewTimer(2 * time.Minute)
	again := time.NewTicker(time.Millisecond)
	defer late.Stop()
	defer again.Stop()
	for len(g.Devices()[0].Tenants) != n {
		select {
		case <-again.C:
		case <-late.C:
			t.Fatalf("tenants: %+v, want %d", g.Devices()[0].Tenants, n)
		}
	}
}

// TestDeviceGoes ends the device while it has tenants; the next device is a new one.
func TestDeviceGoes(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	bus, dev := g.dial(t, allot.Ask{})
	gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{})
	check(t, err)
	g.host().Die()
	<-bus.Done()
	for err == nil {
		_, err = gpu.Alloc(t.Context(), 1)
	}
	if !errors.Is(err, driver.ErrGone) || !strings.Contains(err.Error(), "the agent has closed it") {
		t.Errorf("Alloc: %v", err)
	}
	check(t, dev.Close())
	g.settled(t, 0)
	bus, dev = g.dial(t, allot.Ask{})
	check(t, compute(t.Context(), bus, dev))
	check(t, dev.Close())
}

// TestAgentEnds ends the agent while it has a tenant.
func TestAgentEnds(t *testing.T) {
	var bus *driver.AgentBus
	var dev *driver.Device
	t.Run("agent", func(t *testing.T) {
		g := start(t, kernels(0), agent.Options{}, address)
		var err error
		bus, err = driver.DialAgent(context.Background(), driver.AgentOptions{Socket: g.socket})
		check(t, err)
		dev, err = driver.Open(t.Context(), bus)
		check(t, err)
	})
	<-bus.Done()
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{}); !errors.Is(err, driver.ErrGone) {
		t.Errorf("NewContext: %v", err)
	}
	check(t, dev.Close())
}

// TestForeignSlots writes to another program's slots.
func TestForeignSlots(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	bus, dev := g.dial(t, allot.Ask{Channels: 2})
	other, otherDev := g.dial(t, allot.Ask{Channels: 2})
	theirs := other.Allotment()
	for _, offset := range []int{
		abi.ContextSlot(theirs.Contexts[0], abi.ContextControl), abi.ChannelSlot(theirs.Channels[0], abi.ChannelControl),
		abi.TaskRow(theirs.Contexts[0], abi.TaskMemoryLo), abi.RegReset, abi.RegSelectVersion, abi.DoorbellTable, abi.BAR0Size - 4, 1 << 30,
	} {
		if _, err := bus.Set(uint32(offset), 1); err == nil || !strings.Contains(err.Error(), "not one of this program's slots") {
			t.Errorf("register %#x: %v", offset, err)
		}
	}
	check(t, compute(t.Context(), other, otherDev))
	check(t, dev.Close())
	check(t, otherDev.Close())
}

// TestTenantsFloat has a program's context float on a device that the agent shares.
func TestTenantsFloat(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	_, dev := g.dial(t, allot.Ask{Channels: 2})
	gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 1 << 20, Blocks: 1, Threads: 32}})
	check(t, err)
	check(t, gpu.Close())
	_, err = dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{}})
	if !errors.Is(err, abi.ErrorBadRequest) {
		t.Errorf("a context of no memory: %v", err)
	}
	check(t, dev.Close())
}

// TestRudeTenants sends what no driver sends.
func TestRudeTenants(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	for name, message := range map[string]string{
		"nothing": "", "garbage": "\x00\xff{", "no object": "[1,2]", "huge": strings.Repeat(" ", 100<<10),
	} {
		c, err := allot.Dial(g.socket)
		check(t, err)
		if _, err := c.Write([]byte(message)); err != nil && name != "huge" {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Receive(new(allot.Reply)); err == nil {
			t.Errorf("%s: answered", name)
		}
		_ = c.Close()
	}
	c, err := allot.Dial(g.socket)
	check(t, err)
	for _, r := range []allot.Request{{Op: "dance"}, {Op: allot.OpSet, Offset: 0x1000, Value: 1}} {
		if _, _, err := c.Question(r, time.Minute); err == nil || !strings.Contains(err.Error(), "unknown request") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for name, r := range map[string]allot.Request{
		"no such device": {Op: allot.OpOpen, Address: "0000:00:11.0"},
		"too much":       {Op: allot.OpOpen, Ask: allot.Ask{Contexts: 1000}},
		"less than none": {Op: allot.OpOpen, Ask: allot.Ask{Channels: -1}},
	} {
		c, err := allot.Dial(g.socket)
		check(t, err)
		if _, _, err := c.Question(r, time.Minute); err == nil {
			t.Errorf("%s: granted", name)
		}
		_ = c.Close()
	}
	_ = c.Close()
	// A second part is refused, and the first one stays.
	bus, dev := g.dial(t, allot.Ask{})
	check(t, compute(t.Context(), bus, dev))
	check(t, dev.Close())
}

// TestManyTenants connects more programs than are allowed.
func TestManyTenants(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	var open []net.Conn
	refused := 0
	for range 300 {
		c, err := allot.Dial(g.socket)
		check(t, err)
		open = append(open, c)
	}
	g.log.await(t, "too many connections")
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || err == nil {
			refused++
		}
		_ = c.Close()
	}
	if refused == 0 {
		t.Error("no program was refused")
	}
}

func TestListen(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	st, err := os.Stat(g.socket)
	check(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v", st.Mode())
	}
	if _, err := agent.New(agent.Options{GID: -1}).Listen(g.socket); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
	stale := g.socket + "2"
	check(t, os.WriteFile(stale, nil, 0o600))
	l, err := agent.New(agent.Options{GID: os.Getgid()}).Listen(stale)
	check(t, err)
	if st, err = os.Stat(stale); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("the group's socket: %v, %v", st.Mode(), err)
	}
	check(t, l.Close())
}

// eventLender has an event area of its own, as a polled function has.
type eventLender struct {
	agent.Lender
	area *os.File
}

func (l eventLender) EventArea() (*os.File, error) { return l.area, nil }

// TestEventArea: what stands in for a network card gets the event area's descriptor alone, once a
// program has the device open; without an area it is told so.
func TestEventArea(t *testing.T) {
	for _, has := range []bool{true, false} {
		area, err := os.CreateTemp(t.TempDir(), "area")
		check(t, err)
		t.Cleanup(func() { check(t, area.Close()) }) // after the agent's end
		check(t, area.Truncate(abi.EventAreaBytes))
		o := agent.Options{Open: func(context.Context, string) (agent.Lender, error) {
			h, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures, Kernels: kernels(0)})
			if err != nil {
				return nil, err
			}
			bus, err := drivertest.NewShareable(h)
			if err != nil || !has {
				return bus, err
			}
			return eventLender{bus, area}, nil
		}}
		g := start(t, kernels(0), o, address)
		if _, err := driver.DialEventArea(driver.AgentOptions{Socket: g.socket}); err == nil || !strings.Contains(err.Error(), "no program has it open") {
			t.Errorf("of a device that nobody has open: %v", err)
		}
		_, dev := g.dial(t, allot.Ask{Channels: 3})
		f, err := driver.DialEventArea(driver.AgentOptions{Socket: g.socket})
		if !has {
			if err == nil || !strings.Contains(err.Error(), "no event area") {
				t.Errorf("of a device without one: %v", err)
			}
		} else if check(t, err); err == nil {
			_, err := area.WriteAt([]byte("event"), 4096)
			check(t, err)
			b := make([]byte, 5)
			if _, err := f.ReadAt(b, 4096); err != nil || string(b) != "event" {
				t.Errorf("the area shows %q, %v", b, err)
			}
			check(t, f.Close())
		}
		check(t, dev.Close())
	}
}
