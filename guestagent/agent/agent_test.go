package agent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vgpud/guestagent/agent"
	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/guestagent/sysfs"
	"vgpud/internal/proctest"
	"vgpud/mediator/vgpu/abi"
)

const address = "0000:00:10.0"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plug adds a virtual GPU to a fake root.
func plug(t testing.TB, root, address string, bar2 uint64) {
	t.Helper()
	dir := filepath.Join(root, "sys/bus/pci/devices", address)
	check(t, os.MkdirAll(dir, 0o755))
	none := "0x0 0x0 0x0\n"
	shared := none
	if bar2 > 0 {
		shared = fmt.Sprintf("0x80000000 %#x 0x14220c\n", 0x80000000+bar2-1)
	}
	for name, text := range map[string]string{
		"resource": "0xfea00000 0xfea0ffff 0x40200\n" + none + shared + none + none + none, "resource0": "", "resource2": "",
		"driver_override": "(null)\n", "enable": "0\n", "device": "0x0001\n", "class": "0x120000\n", "vendor": "0x7667\n",
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func unplug(t testing.TB, root, address string) {
	t.Helper()
	check(t, os.RemoveAll(filepath.Join(root, "sys/bus/pci/devices", address)))
}

// script is the kernel's events, written by a test.
type script chan sysfs.Event

func (s script) Next(ctx context.Context) (sysfs.Event, error) {
	select {
	case e := <-s:
		return e, nil
	case <-ctx.Done():
		return sysfs.Event{}, context.Cause(ctx)
	}
}

func (s script) Close() error { return nil }

// guest is a running agent in a guest that a test makes.
type guest struct {
	*agent.Agent
	root   string
	socket string
	events script
	log    *log

	mu    sync.Mutex
	hosts []*drivertest.Host // opened so far
}

// log keeps log messages and lets a test wait for one.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.text.Write(b)
}

// await waits until a message was logged.
func (l *log) await(t testing.TB, what string) {
	t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	for {
		l.mu.Lock()
		text, more := l.text.String(), l.more
		l.mu.Unlock()
		if strings.Contains(text, what) {
			return
		}
		select {
		case <-more:
		case <-late.C:
			t.Fatalf("never logged %q:\n%s", what, text)
		}
	}
}

// kernels returns the check's kernels, with the formula of its PTX.
func kernels(wrong uint32) map[string]drivertest.Kernel {
	return map[string]drivertest.Kernel{
		"vgpu_agent_empty": {},
		"vgpu_agent_check": {Params: []int{8, 4}, Run: func(g *drivertest.GPU, l abi.Launch, p []byte) error {
			n := l.Grid[0] * l.Block[0]
			out, seed := g.Bytes(binary.LittleEndian.Uint64(p), uint64(4*n)), binary.LittleEndian.Uint32(p[8:])
			if out == nil {
				return abi.StatusIllegalAddress
			}
			for i := range n {
				h := (i ^ seed) * 2654435761
				binary.LittleEndian.PutUint32(out[4*i:], h^h>>16^wrong)
			}
			return nil
		}},
	}
}

// start runs an agent with these devices.
func start(t testing.TB, kernels map[string]drivertest.Kernel, o agent.Options, addresses ...string) *guest {
	t.Helper()
	// Paths of sockets are short.
	root, err := os.MkdirTemp("", "vgpu-agent-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(root)) })
	g := &guest{root: root, socket: filepath.Join(root, "agent.sock"), events: make(script), log: &log{more: make(chan struct{})}}
	check(t, os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755))
	for _, a := range addresses {
		plug(t, root, a, abi.MinSharedBytes)
	}
	if o.GID == 0 {
		o.GID = -1
	}
	o.PCI.Root, o.Log = root, slog.New(slog.NewTextHandler(g.log, nil))
	o.Events = func() (agent.Events, error) { return g.events, nil }
	if o.Open == nil {
		o.Open = func(context.Context, string) (agent.Lender, error) {
			h, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures, Kernels: kernels})
			if err != nil {
				return nil, err
			}
			g.mu.Lock()
			g.hosts = append(g.hosts, h)
			g.mu.Unlock()
			l, err := drivertest.NewShareable(h)
			if err != nil {
				return nil, err
			}
			return l, nil
		}
	}
	g.Agent = agent.New(o)
	l, err := g.Listen(g.socket)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	ready := make(chan struct{})
	done.Go(func() {
		if err := g.Run(ctx, func() { close(ready) }); err != nil {
			t.Error(err)
		}
	})
	done.Go(func() {
		if err := g.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	<-ready
	return g
}

// host returns the device that was opened last.
func (g *guest) host() *drivertest.Host {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hosts[len(g.hosts)-1]
}

// states returns the states of all devices.
func (g *guest) states() string {
	var s []string
	for _, d := range g.Devices() {
		s = append(s, d.Address+" "+d.State)
	}
	return strings.Join(s, ", ")
}

func TestDevicesComeAndGo(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	if got, want := g.states(), address+" polling"; got != want {
		t.Errorf("at the start: %s, want %s", got, want)
	}
	d := g.Devices()[0]
	if d.Check == nil || !d.Check.OK || d.Check.Launch == nil || !strings.Contains(d.Problem, "modprobe vfio-pci") {
		t.Errorf("device: %+v, check: %+v", d, d.Check)
	}
	const second = "0000:01:00.0"
	plug(t, g.root, second, abi.MinSharedBytes)
	g.events <- sysfs.Event{Action: "add", Address: second}
	g.log.await(t, `msg="virtual GPU ready" device=`+second)
	unplug(t, g.root, address)
	g.events <- sysfs.Event{Action: "remove", Address: address}
	g.log.await(t, `msg="virtual GPU unplugged" device=`+address)
	if got, want := g.states(), second+" polling"; got != want {
		t.Errorf("in the end: %s, want %s", got, want)
	}
}

// TestReplugAtTheSameAddress has the agent scan only when another device is at the address of the
// one that it knows.
func TestReplugAtTheSameAddress(t *testing.T) {
	g := start(t, kernels(0), agent.Options{}, address)
	before := g.Devices()[0]
	const elsewhere = "0000:00:11.0"
	plug(t, g.root, elsewhere, abi.MinSharedBytes) // while the first is there: another directory
	unplug(t, g.root, address)
	devices := filepath.Join(g.root, "sys/bus/pci/devices")
	check(t, os.Rename(filepath.Join(devices, elsewhere), filepath.Join(devices, address)))
	g.events <- sysfs.Event{Action: "add", Address: address}
	g.log.await(t, `msg="virtual GPU unplugged" device=`+address)
	// A program that asks waits until the new one is prepared.
	bus, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Address: address})
	check(t, err)
	check(t, bus.Close())
	if d := g.Devices(); len(d) != 1 || d[0].Check == nil || d[0].Check == before.Check {
		t.Errorf("in the end: %+v; before: %+v", d, before)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.hosts) != 3 { // two checks and a program
		t.Errorf("opened %d times, want 3", len(g.hosts))
	}
}

func TestDevicesThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		kernels map[string]drivertest.Kernel
		open    func(context.Context, string) (agent.Lender, error)
		bar2    uint64
		state   string
		problem string
	}{
		"wrong result": {kernels: kernels(1), bar2: abi.MinSharedBytes, state: "failed", problem: "in thread 0, want"},
		"no room":      {kernels: kernels(0), state: "failed", problem: "pref64-reserve"},
		"no opening": {bar2: abi.MinSharedBytes, state: "failed", problem: "no luck", open: func(context.Context, string) (agent.Lender, error) {
			return nil, errors.New("no luck")
		}},
		"in use": {bar2: abi.MinSharedBytes, state: "polling", problem: "modprobe", open: func(context.Context, string) (agent.Lender, error) {
			return nil, driver.ErrBusy
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, c.kernels, agent.Options{Open: c.open})
			plug(t, g.root, address, c.bar2)
			g.events <- sysfs.Event{Action: "add", Address: address}
			g.log.await(t, address+" ")
			// A program that asks waits until the device is prepared.
			_, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket, Address: address})
			if err == nil {
				t.Error("a part of what can't be opened")
			}
			d := g.Devices()
			if len(d) != 1 || d[0].State != c.state || !strings.Contains(d[0].Problem, c.problem) {
				t.Errorf("devices: %+v", d)
			}
		})
	}
}

// TestCheckOfASlowDevice checks that a device has minutes for its check: on a busy host it takes
// more than half a minute without being defective.
func TestCheckOfASlowDevice(t *testing.T) {
	left := make(chan time.Duration, 1)
	start(t, nil, agent.Options{Open: func(ctx context.Context, _ string) (agent.Lender, error) {
		late, _ := ctx.Deadline()
		left <- time.Until(late)
		return nil, driver.ErrBusy
	}}, address)
	if d := <-left; d < 5*time.Minute {
		t.Errorf("a check has %v", d)
	}
}

// TestFailedDeviceIsTriedAgain has a device whose host is in trouble at first.
func TestFailedDeviceIsTriedAgain(t *testing.T) {
	var well atomic.Bool
	o := agent.Options{Open: func(context.Context, string) (agent.Lender, error) {
		if !well.Load() {
			return nil, errors.New("no luck")
		}
		h, err := drivertest.NewHost(drivertest.Options{Features: abi.AllFeatures, Kernels: kernels(0)})
		if err != nil {
			return nil, err
		}
		return drivertest.NewShareable(h)
	}}
	g := start(t, nil, o, address)
	if got, want := g.states(), address+" failed"; got != want {
		t.Errorf("at the start: %s, want %s", got, want)
	}
	well.Store(true)
	proctest.Until(t, "the device is tried again", func() bool {
		bus, err := driver.DialAgent(t.Context(), driver.AgentOptions{Socket: g.socket})
		if err != nil {
			return false
		}
		check(t, bus.Close())
		return true
	})
	g.log.await(t, `msg="virtual GPU is tried again"`)
	if d := g.Devices()[0]; d.State != agent.StatePolling || d.Check == nil || !d.Check.OK {
		t.Errorf("in the end: %+v", d)
	}
}

// TestGroup gives a group access to devices and the socket.
func TestGroup(t *testing.T) {
	alone, err := os.Stat(start(t, kernels(0), agent.Options{}).socket)
	check(t, err)
	if alone.Mode().Perm() != 0o600 {
		t.Errorf("without a group the socket has %v", alone.Mode())
	}
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 4321
	}
	if gid == 0 {
		t.Skip("the user's group is root's, which stands for none")
	}
	g := start(t, kernels(0), agent.Options{GID: gid}, address)
	dir := filepath.Join(g.root, "sys/bus/pci/devices", address)
	for _, path := range []string{g.socket, filepath.Join(dir, "resource0"), filepath.Join(dir, "resource2")} {
		st, err := os.Stat(path)
		check(t, err)
		if owner := st.Sys().(*syscall.Stat_t).Gid; int(owner) != gid || st.Mode().Perm() != 0o660 {
			t.Errorf("%s: group %d, %v", path, owner, st.Mode())
		}
	}
	on, err := os.ReadFile(filepath.Join(dir, "enable"))
	check(t, err)
	if !strings.HasPrefix(string(on), "1") {
		t.Error("the function is not enabled, which the group could not do")
	}
}

func TestAlive(t *testing.T) {
	beats := make(chan struct{}, 100)
	start(t, kernels(0), agent.Options{Heartbeat: time.Millisecond, Alive: func() {
		select {
		case beats <- struct{}{}:
		default:
		}
	}})
	for range 3 {
		<-beats
	}
}
