package daemon

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vgpud/fairshare/quota"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
)

func TestCordonApply(t *testing.T) {
	yes, no := new(true), new(false)
	none, cordoned, draining := cordon{}, cordon{Cordoned: true}, cordon{Cordoned: true, Draining: true}
	for name, c := range map[string]struct {
		had    cordon
		update api.GPUUpdate
		want   cordon
	}{
		"cordon":                 {none, api.GPUUpdate{Cordoned: yes}, cordoned},
		"drain cordons":          {none, api.GPUUpdate{Draining: yes}, draining},
		"drain what is cordoned": {cordoned, api.GPUUpdate{Draining: yes}, draining},
		"cordon what is drained": {draining, api.GPUUpdate{Cordoned: yes}, draining},
		"end a drain":            {draining, api.GPUUpdate{Draining: no}, cordoned},
		"uncordon ends a drain":  {draining, api.GPUUpdate{Cordoned: no}, none},
		"another change":         {draining, api.GPUUpdate{}, draining},
	} {
		if got := c.had.apply(&c.update); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// updateGPU changes a GPU.
func (d *daemon) updateGPU(name string, u api.GPUUpdate) {
	d.t.Helper()
	if _, err := d.client.UpdateGPU(d.t.Context(), name, u); err != nil {
		d.t.Fatal(err)
	}
}

// TestCordon: no guest is created on a cordoned GPU, also by the next daemon, until it is not
// cordoned any more. Those that it has go on.
func TestCordon(t *testing.T) {
	dir := runDir(t)
	start := func() *daemon { return startDaemonOf(t, dir, idleGPU{}, statefile.Files{}, "gpu0", "gpu1") }
	d := start()
	first := d.createVM(api.VMSpec{Name: "first", BAR2Bytes: 16 << 20, GPU: "gpu0"})
	j := newJob(t, attach(t, first.Socket))
	d.updateGPU("gpu0", api.GPUUpdate{Cordoned: new(true)})
	refuses := func(what string) {
		t.Helper()
		_, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "named", GPU: "gpu0", BAR2Bytes: 16 << 20})
		if !errors.Is(err, api.ErrNoRoom) || !strings.Contains(err.Error(), "vgpuctl uncordon gpu gpu0") {
			t.Errorf("%s: a guest on the cordoned GPU: %v", what, err)
		}
		h, err := d.client.Health(t.Context())
		if diff := cmp.Diff([]string{"GPU gpu0 is cordoned"}, h.Cordoned); err != nil || diff != "" || !h.Healthy {
			t.Errorf("%s: health %+v, %v (-want +got):\n%s", what, h, err, diff)
		}
	}
	refuses("the daemon that was asked")
	other := d.createVM(api.VMSpec{Name: "other", GPU: "gpu1", BAR2Bytes: 16 << 20, Weight: 8}) // gpu0 has the least sum of weights
	if v := d.createVM(api.VMSpec{Name: "any", BAR2Bytes: 16 << 20, Weight: 0.5}); v.GPU != "gpu1" {
		t.Errorf("a guest is placed on %s", v.GPU)
	}
	j.works()
	newJob(t, attach(t, other.Socket)).works()
	d.stop()
	d = start()
	refuses("the next daemon")
	j.works()
	d.updateGPU("gpu0", api.GPUUpdate{Cordoned: new(false)})
	d.createVM(api.VMSpec{Name: "named", GPU: "gpu0", BAR2Bytes: 16 << 20})
	d.stop()
	d = start()
	if g, err := d.service.GPU("gpu0"); err != nil || g.Cordoned || g.Draining {
		t.Errorf("gpu0 is %+v, %v", g, err)
	}
}

// TestCordonOutlivesTheHost: a GPU stays cordoned, or draining, over a reboot of the host, which
// empties run_dir, and over the change from a daemon that kept that in run_dir.
func TestCordonOutlivesTheHost(t *testing.T) {
	dir, state := runDir(t), runDir(t)
	start := func() *daemon {
		return startDaemonThat(t, dir, idleGPU{}, statefile.Files{}, func(c *Config) { c.StateDir = filepath.Join(state, "vgpud") }, "gpu0", "gpu1")
	}
	reboot := func(d *daemon) *daemon {
		d.stop()
		dir = runDir(t)
		return start()
	}
	want := func(d *daemon, what string, gpu0, gpu1 cordon) {
		t.Helper()
		for name, want := range map[string]cordon{"gpu0": gpu0, "gpu1": gpu1} {
			if g, err := d.service.GPU(name); err != nil || (cordon{g.Cordoned, g.Draining}) != want {
				t.Errorf("%s: %s is %+v, %v; want %+v", what, name, g, err, want)
			}
		}
	}
	d := start()
	d.updateGPU("gpu0", api.GPUUpdate{Cordoned: new(true)})
	d.updateGPU("gpu1", api.GPUUpdate{Draining: new(true)})
	d = reboot(d)
	want(d, "after a reboot", cordon{Cordoned: true}, cordon{true, true})
	if _, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "a", BAR2Bytes: 16 << 20}); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("a guest is created: %v", err)
	}
	d.updateGPU("gpu1", api.GPUUpdate{Cordoned: new(false)})
	d = reboot(d)
	want(d, "after another", cordon{Cordoned: true}, cordon{})

	// As an earlier daemon had it.
	d.stop()
	if err := os.MkdirAll(filepath.Dir(d.service.earlierCordonFile("gpu0")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.service.cordonFile("gpu0"), d.service.earlierCordonFile("gpu0")); err != nil {
		t.Fatal(err)
	}
	d = start()
	want(d, "after an upgrade", cordon{Cordoned: true}, cordon{})
	d = reboot(d)
	want(d, "after an upgrade and a reboot", cordon{Cordoned: true}, cordon{})
	d.updateGPU("gpu0", api.GPUUpdate{Cordoned: new(false)})
	d.stop()
	want(start(), "after all", cordon{}, cordon{})
}

// TestUnreadableCordon: a GPU stays out of use if it is not known that it may be used.
func TestUnreadableCordon(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	d.stop()
	if err := os.WriteFile(d.service.cordonFile("gpu0"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, dir)
	if g, err := d.service.GPU("gpu0"); err != nil || !g.Cordoned {
		t.Errorf("gpu0 is %+v, %v", g, err)
	}
}

// TestDrain: on a GPU that is drained the contexts that there are go on until they end, and no
// others start until the drain is over.
func TestDrain(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	dev := attach(t, d.create("a").Socket)
	j := newJob(t, dev)
	j.works()
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	refused := func(what string) {
		t.Helper()
		until(t, "a context is refused: "+what, func() bool {
			c, err := dev.NewContext(t.Context(), driver.ContextOptions{})
			if err != nil {
				return true
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			return false
		})
	}
	drained := func() bool {
		g, err := d.service.GPU("gpu0")
		if err != nil || !g.Draining {
			t.Fatalf("gpu0 is %+v, %v", g, err)
		}
		return g.Drained
	}
	refused("by the daemon that was asked")
	j.works()
	if drained() {
		t.Error("drained, with a guest's context there")
	}
	d.stop()
	d = startDaemon(t, dir)
	refused("after the daemon started anew")
	j.works()
	if d.vm("a").Contexts != 1 {
		t.Errorf("the guest is %+v", d.vm("a"))
	}
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{EndContexts: true}); err != nil {
		t.Fatal(err)
	}
	until(t, "the contexts end", func() bool { return d.vm("a").Contexts == 0 })
	if !drained() {
		t.Error("not drained, though no guest has a context there")
	}
	if v := d.vm("a"); !v.Attached {
		t.Errorf("the VMM is gone, too: %+v", v)
	}
	d.updateGPU("gpu0", api.GPUUpdate{Cordoned: new(false)})
	if _, err := d.client.UpdateGPU(t.Context(), "gpu0", api.GPUUpdate{EndContexts: true}); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("contexts are ended on a GPU that is not drained: %v", err)
	}
	// The guest's process learns a moment later that the drain is over.
	until(t, "contexts start again", func() bool { return j.gpu.Reset(t.Context()) == nil })
	j.load()
	j.works()
}

// TestDrainEndsLater: a drain that ends while a guest can't be told, here since no daemon runs, is
// over for the guest once it is adopted.
func TestDrainEndsLater(t *testing.T) {
	dir := runDir(t)
	d := startDaemon(t, dir)
	dev := attach(t, d.create("a").Socket)
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	until(t, "contexts are refused", func() bool {
		c, err := dev.NewContext(t.Context(), driver.ContextOptions{})
		if err == nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		return err != nil
	})
	d.stop()
	if err := os.Remove(d.service.cordonFile("gpu0")); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, dir)
	until(t, "contexts start", func() bool {
		c, err := dev.NewContext(t.Context(), driver.ContextOptions{})
		return err == nil && c.Close() == nil
	})
}

// TestDrainMoves: a guest without a VMM is moved to another GPU, with all that it has.
func TestDrainMoves(t *testing.T) {
	d := startDaemonOf(t, runDir(t), idleGPU{}, statefile.Files{}, "gpu0", "gpu1")
	own := os.Geteuid()
	spec := api.VMSpec{Name: "off", GPU: "gpu0", BAR2Bytes: 16 << 20, Weight: 3, Cap: 0.5, Guarantee: 0.25, PriorityCeiling: 2, MemoryLimitBytes: 32 << 20, UID: &own, Project: "x"}
	d.createVM(spec)
	update := api.VMUpdate{
		Owner: new("alice"), KernelTimeLimit: new(3 * time.Second), Latency: new(time.Millisecond),
		Budget: &quota.Budget{Hard: time.Hour, Soft: time.Minute, Period: quota.Day},
	}
	before, err := d.client.UpdateVM(t.Context(), "off", update)
	if err != nil {
		t.Fatal(err)
	}
	d.charge("off", 7*ms)
	used := d.vm("off").GPUSeconds
	counts := func(what string, want time.Duration) {
		t.Helper()
		var recorded, counted time.Duration
		until(t, "recorded, and counted for its budget, "+what, func() bool {
			recorded = time.Duration(math.Round(d.usage("vm").Total.GPUSeconds*1e6)) * time.Microsecond
			counted = budgetOf(d.vm("off").Budget).Used
			return recorded >= want && counted >= want
		})
		if recorded != want || counted != want {
			t.Errorf("%s %v are recorded, and %v count for its budget, want %v", what, recorded, counted, want)
		}
	}
	counts("before it is moved", 7*ms)
	attached := d.createVM(api.VMSpec{Name: "on", GPU: "gpu0", BAR2Bytes: 16 << 20})
	attach(t, attached.Socket)
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	dr := newDrainer(d.service)
	now := d.service.clock.Now()
	dr.moveIdle(now)
	if v := d.vm("off"); v.PID != before.PID {
		t.Errorf("it is moved although its VMM may be about to connect: %+v", v)
	}
	dr.moveIdle(now + moveAfter)
	after := d.vm("off")
	type had struct {
		GPU, Socket            string
		Weight, Cap, Guarantee float64
		Ceiling                int
		Memory                 uint64
		Used                   bool
		Owner, Project         string
		Limit, Latency         time.Duration
		Budget                 quota.Budget
	}
	want := had{"gpu1", before.Socket, 3, 0.5, 0.25, 2, 32 << 20, true, "alice", "x", 3 * time.Second, time.Millisecond, *update.Budget}
	got := had{
		after.GPU, after.Socket, after.Weight, after.Cap, after.Guarantee, after.PriorityCeiling, after.MemoryLimitBytes, used > 0 && after.GPUSeconds >= used,
		after.Owner, after.Project, after.KernelTimeLimit, after.Latency, budgetOf(after.Budget).Budget,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
	if after.PID == before.PID || after.KernelTimeLimit != before.KernelTimeLimit {
		t.Errorf("before %+v, after %+v", before, after)
	}
	// Its use before the move is neither recorded nor counted again.
	d.charge("off", 3*ms)
	counts("after it was moved", 10*ms)
	newJob(t, attach(t, after.Socket)).works()
	if v := d.vm("on"); v.GPU != "gpu0" || v.PID != attached.PID {
		t.Errorf("a guest with a VMM is moved: %+v", v)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "off"); err != nil {
		t.Error(err)
	}
}

// TestMoveThatIsCutOff: while a guest that is moved has ended and its successor does not run yet, the next
// daemon would find that it is lost, and not nothing.
func TestMoveThatIsCutOff(t *testing.T) {
	dir := runDir(t)
	var moving, noted atomic.Bool
	lost := filepath.Join(dir, "lost", "a.json")
	files := statefile.Files{Fault: func(s statefile.Step, path string) error {
		if moving.Load() && s == statefile.Rename && path == filepath.Join(dir, "vms", "a", stateFile) {
			_, err := os.Stat(lost)
			noted.Store(err == nil)
		}
		return nil
	}}
	d := startDaemonOf(t, dir, idleGPU{}, files, "gpu0", "gpu1")
	d.createVM(api.VMSpec{Name: "a", GPU: "gpu0", BAR2Bytes: 16 << 20})
	d.charge("a", 7*ms)
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	moving.Store(true)
	if err := d.service.move(d.guest("a")); err != nil {
		t.Fatal(err)
	}
	moving.Store(false)
	if v := d.vm("a"); !noted.Load() || v.GPU != "gpu1" || v.Lost != "" {
		t.Errorf("noted: %v, then %+v", noted.Load(), v)
	}
	absent(t, lost)
	d.charge("a", ms)
	// One that was killed before the guest ended has left the note of a guest that is there.
	v := d.vm("a")
	if err := d.service.saveLost(lostAs(&v, "test")); err != nil {
		t.Fatal(err)
	}
	d.stop()
	d = startDaemonOf(t, dir, idleGPU{}, statefile.Files{}, "gpu0", "gpu1")
	if v := d.vm("a"); v.Lost != "" {
		t.Errorf("after the daemon started anew: %+v", v)
	}
	absent(t, lost)
	d.charge("a", 2*ms)
	var total float64
	until(t, "all is recorded", func() bool {
		total = d.usage("vm").Total.GPUSeconds
		return total > 0.0099
	})
	if total > 0.0101 {
		t.Errorf("%v s are recorded", total)
	}
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestMoveWithRemains: a guest that was ended to be moved is moved, even if its directory could not be
// removed before it is made anew.
func TestMoveWithRemains(t *testing.T) {
	dir := runDir(t)
	var stuck atomic.Bool
	files := statefile.Files{Fault: func(s statefile.Step, path string) error {
		if s == statefile.Remove && path == filepath.Join(dir, "vms", "a") && stuck.Swap(false) {
			return unix.EIO
		}
		return nil
	}}
	d := startDaemonOf(t, dir, idleGPU{}, files, "gpu0", "gpu1")
	d.createVM(api.VMSpec{Name: "a", GPU: "gpu0", BAR2Bytes: 16 << 20})
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	stuck.Store(true)
	if err := d.service.move(d.guest("a")); err != nil || stuck.Load() {
		t.Errorf("move = %v, removed without a fault: %v", err, stuck.Load())
	}
	if v := d.vm("a"); v.GPU != "gpu1" || v.Lost != "" {
		t.Errorf("after that: %+v", v)
	}
}

// TestDrainWithoutRoom: a guest that no other GPU has room for stays as it is.
func TestDrainWithoutRoom(t *testing.T) {
	d := startDaemon(t, runDir(t))
	v := d.create("a")
	d.updateGPU("gpu0", api.GPUUpdate{Draining: new(true)})
	if err := d.service.move(d.guest("a")); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("move = %v", err)
	}
	if d.vm("a").PID != v.PID {
		t.Error("it was ended")
	}
}

// TestToldLast: of two changes of a GPU's cordon, guests are told last what holds, and nobody else waits
// for those that are told.
func TestToldLast(t *testing.T) {
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ipc.FromFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	dev := &device{config: GPUConfig{Name: "gpu0"}}
	g := &guest{spec: ipc.Spec{Name: "a"}, conn: ours, presence: presence{device: dev}}
	s := &Service{log: slog.New(slog.DiscardHandler), guests: map[string]*guest{"a": g}}
	dev.telling.Lock() // they are told of a change before
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.tellDrain(dev, s.guestsOn(dev), false)
	}()
	until(t, "it waits", func() bool { return waitsIn("tellDrain", "sync.Mutex.Lock") })
	if s.mu.TryLock() {
		s.mu.Unlock()
	} else {
		t.Error("the daemon's lock is held")
	}
	dev.setCordon(cordon{Cordoned: true, Draining: true})
	dev.telling.Unlock()
	<-told
	m, err := conn.Receive()
	if err != nil {
		t.Fatal(err)
	}
	var d ipc.Drain
	if err := m.Decode(&d); err != nil || d != (ipc.Drain{Refuse: true}) {
		t.Errorf("it is told %+v, %v", d, err)
	}
	if err := errors.Join(ours.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
}

// waitsIn reports whether a goroutine waits in a method of this name, for a reason as the runtime calls it.
func waitsIn(method, reason string) bool {
	stacks := make([]byte, 1<<20)
	for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if strings.Contains(head, "["+reason) && strings.Contains(frames, ")."+method+"(") {
			return true
		}
	}
	return false
}
