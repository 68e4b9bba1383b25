package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/guestagent/driver"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
	"vgpud/mediator/tasks"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vm"
)

// roomyGPU is an idle GPU with memory.
type roomyGPU struct{ idleGPU }

func (roomyGPU) Properties() gpu.Properties {
	return gpu.Properties{Name: "roomy", SMs: 4, MemoryBytes: 64 << 20}
}

// floating creates a guest that floats, with its driver.
func (d *daemon) floating(name string) *driver.Device {
	d.t.Helper()
	return d.floatingWithin(name, 0)
}

// floatingWithin is floating with a memory limit in bytes; 0 is the GPU's memory.
func (d *daemon) floatingWithin(name string, limit uint64) *driver.Device {
	d.t.Helper()
	return attach(d.t, d.createVM(api.VMSpec{Name: name, BAR2Bytes: 16 << 20, Float: true, MemoryLimitBytes: limit}).Socket)
}

// task returns the state of the host's only task, or "".
func (d *daemon) task() string {
	d.t.Helper()
	all := d.service.Tasks().Tasks
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0].State
	}
	d.t.Fatalf("tasks: %+v", all)
	return ""
}

// TestGrantIsSavedFirst: where it can't be saved what a context is granted, it waits, and begins once
// it can.
func TestGrantIsSavedFirst(t *testing.T) {
	var full atomic.Bool
	refused := make(chan struct{}, 1)
	files := statefile.Files{Fault: func(s statefile.Step, path string) error {
		if s != statefile.Write || !full.Load() {
			return nil
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return unix.ENOSPC
	}}
	d := startDaemonOf(t, runDir(t), roomyGPU{}, files, "gpu0", "gpu1")
	dev := d.floating("a")
	full.Store(true)
	begun := make(chan error, 1)
	go func() {
		_, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 1 << 20}})
		begun <- err
	}()
	select {
	case <-refused:
	case err := <-begun:
		t.Fatal(err)
	}
	until(t, "the context waits", func() bool { return d.task() == api.TaskWaits })
	if w := d.service.Tasks().Waits; w.Count != 0 {
		t.Errorf("the wait of a context that has not begun is counted, and would be taken back: %+v", w)
	}
	select {
	case err := <-begun:
		t.Fatalf("a context has a GPU that was not saved (%v)", err)
	default:
	}
	if n := len(d.executors("a")); n != 0 {
		t.Errorf("%d executors of a context that waits", n)
	}
	full.Store(false)
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	if w := d.service.Tasks().Waits; w.Count != 1 {
		t.Errorf("waits: %+v", w)
	}
	saved, err := readState(d.service.guestDir("a"))
	if err != nil || len(saved.Tasks) != 1 || saved.Tasks[0].Memory != 1<<20 {
		t.Errorf("saved: %+v, %v", saved, err)
	}
}

// TestHostileTasks sends what no guest's process sends, and a request for each of many generations of
// a slot.
func TestHostileTasks(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	d.floating("a")
	plain := d.create("plain")
	g := d.guest("a")
	send := func(g *guest, kind ipc.Kind, body any) {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		d.service.handleTask(g, &ipc.Message{Kind: kind, Body: b})
	}
	for name, body := range map[string]any{
		"not a task": 7, "a negative slot": ipc.Task{Slot: -1, Memory: 1}, "a slot too high": ipc.Task{Slot: ipc.MaxContexts, Memory: 1},
		"no memory": ipc.Task{}, "2^64-1 bytes": ipc.Task{Memory: 1<<64 - 1}, "blocks of too many threads": ipc.Task{Memory: 1, Blocks: 1, Threads: abi.MaxTaskThreads + 1},
	} {
		send(g, ipc.KindTask, body)
		send(g, ipc.KindTaskGone, body)
		if all := d.service.Tasks().Tasks; len(all) != 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
	send(d.guest(plain.Name), ipc.KindTask, ipc.Task{Memory: 1}) // it does not float
	for i := range uint32(10_000) {
		send(g, ipc.KindTask, ipc.Task{Slot: 3, Generation: i, Memory: 64 << 20})
		send(g, ipc.KindTask, ipc.Task{Slot: 3, Generation: i, Memory: 64 << 20})
	}
	if all := d.service.Tasks().Tasks; len(all) != 1 || all[0].VM != "a" || all[0].Context != 3 {
		t.Errorf("tasks: %+v", all)
	}
	send(g, ipc.KindTaskGone, ipc.Task{Slot: 3, Generation: 1}) // gone long since
	if d.task() == "" {
		t.Error("the end of an earlier context took the place of a later one")
	}
	send(g, ipc.KindTaskGone, ipc.Task{Slot: 3, Generation: 9_999})
	until(t, "it is gone", func() bool { return d.task() == "" })
}

// TestGuestsOfAGPU: a guest that floats is counted as one of a GPU where it has contexts, and not where
// it only may have some.
func TestGuestsOfAGPU(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0", "gpu1")
	dev := d.floating("a")
	counts := func() (counted, listed [2]int) {
		for i, g := range d.service.GPUs() {
			counted[i] = g.VMs
			for _, v := range d.service.VMs() {
				if _, there := v.On(g.Name); there {
					listed[i]++
				}
			}
		}
		return counted, listed
	}
	if n, _ := counts(); n != [2]int{} {
		t.Fatalf("%v guests before there is a context", n)
	}
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is counted where it has the context", func() bool {
		counted, listed := counts()
		return counted[0]+counted[1] == 1 && counted == listed
	})
}

// TestFloatsOver: a guest floats over the GPUs of its own GPU's kind.
func TestFloatsOver(t *testing.T) {
	s := &Service{}
	for _, c := range []GPUConfig{{Name: "a", Kind: kindSoft}, {Name: "b", Kind: "other"}, {Name: "c", Kind: kindSoft}} {
		s.devices = append(s.devices, &device{config: c})
	}
	got := s.floatsOver(s.devices[2])
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "c" {
		t.Errorf("over %+v", got)
	}
	for range 40 {
		s.devices = append(s.devices, &device{config: GPUConfig{Name: "more", Kind: kindSoft}})
	}
	last := &device{config: GPUConfig{Name: "last", Kind: kindSoft}}
	s.devices = append(s.devices, last)
	if got := s.floatsOver(last); len(got) != ipc.MaxGPUs || got[ipc.MaxGPUs-1].Name != "last" {
		t.Errorf("over %d GPUs, the last one %s", len(got), got[len(got)-1].Name)
	}
	if err := s.checkFloat(0); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a guest without a limit: %v", err)
	}
}

// TestAlike: a guest that floats is told whether its GPUs differ.
func TestAlike(t *testing.T) {
	a := gpu.Properties{Name: "a model", SMs: 4, MemoryBytes: 64 << 20, UUID: [16]byte{1}}
	other, more := a, a
	other.UUID, more.SMs = [16]byte{2}, 5
	if !sameProperties([]gpu.Properties{a}) || !sameProperties([]gpu.Properties{a, other}) {
		t.Error("GPUs of a model differ")
	}
	if sameProperties([]gpu.Properties{a, other, more}) {
		t.Error("one has more SMs, but they don't differ")
	}
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0", "gpu1")
	if f := d.floating("a").Info().Features; f&abi.FeatureAlike == 0 {
		t.Errorf("a guest that floats over GPUs that are alike has %v", f)
	}
}

// TestLoweredLimit: contexts that don't say what they need get what their guest may have after its limit
// was lowered.
func TestLoweredLimit(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	dev := d.floating("a")
	limit := uint64(48 << 20)
	if _, err := d.service.UpdateVM(access.Caller{}, "a", api.VMUpdate{MemoryLimitBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{}); err != nil {
		t.Fatal(err)
	}
	if all := d.service.Tasks().Tasks; len(all) != 1 || all[0].MemoryBytes != limit || all[0].State != api.TaskPlaced {
		t.Errorf("tasks: %+v", all)
	}
}

// TestLoweredLimitOfTasksThatLeft: a new daemon lets a context that has left its GPU go on with what it had,
// though the guest's limit was lowered meanwhile, as far as an earlier daemon saved that; and saves it for
// the next one.
func TestLoweredLimitOfTasksThatLeft(t *testing.T) {
	const had, limit = 50 << 20, 30 << 20
	task := ipc.Task{Slot: 3, Generation: 2, Memory: 20 << 20}
	saved := savedTask{Task: task, Granted: had, Left: 1}
	placed := saved
	placed.GPU, placed.Left = "gpu0", 0
	for name, c := range map[string]struct {
		saved savedState
		want  uint64
	}{
		"it had left":                    {savedState{AwayTasks: []savedTask{saved}}, had},
		"it left while no daemon ran":    {savedState{Tasks: []savedTask{placed}}, had},
		"nobody knows what it had":       {savedState{}, limit},
		"another context of that number": {savedState{AwayTasks: []savedTask{{Task: ipc.Task{Slot: 3, Generation: 1, Memory: 20 << 20}, Granted: had, Left: 1}}}, limit},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
			d.floatingWithin("a", limit)
			s := d.service
			s.mu.RLock()
			g := s.guests["a"]
			s.mu.RUnlock()
			g.introduced = []ipc.Task{task}
			g.departed = []ipc.Left{{Slot: task.Slot, Generation: task.Generation, Times: 1, Bytes: 4096, Memory: had}}
			s.restoreTasks(g, &c.saved)
			s.startTasks(g)
			all := s.Tasks().Tasks
			if len(all) != 1 || all[0].MemoryBytes != c.want || all[0].State != api.TaskParked {
				t.Fatalf("tasks: %+v", all)
			}
			want := saved
			want.Granted = c.want
			if _, away := g.savedTasks(); !slices.Equal(away, []savedTask{want}) {
				t.Errorf("saved as %+v", away)
			}
			s.tasks.locked(func(t *tasks.Table) { t.Wants(s.clock.Now(), g.key(&task)) })
			s.tasks.notify()
			until(t, "it is placed", func() bool { return d.task() == api.TaskPlaced })
			if now, away := g.savedTasks(); len(now) != 1 || now[0].granted() != c.want || len(away) != 0 {
				t.Errorf("placed, it is saved as %+v, away %+v", now, away)
			}
		})
	}
}

// TestRaisedLimit: a context that doesn't say what it needs, and waits while its guest's limit is raised,
// gets what the guest may have then.
func TestRaisedLimit(t *testing.T) {
	ctx := t.Context()
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	other, err := d.floating("b").NewContext(ctx, driver.ContextOptions{Task: &driver.Task{MemoryBytes: 40 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	dev := d.floatingWithin("a", 32<<20)
	type made struct {
		gpu *driver.Context
		err error
	}
	begun := make(chan made, 1)
	go func() {
		c, err := dev.NewContext(ctx, driver.ContextOptions{})
		begun <- made{c, err}
	}()
	until(t, "it waits", func() bool {
		all := d.service.Tasks().Tasks
		return len(all) == 2 && all[0].VM == "a" && all[0].Why != ""
	})
	limit := uint64(60 << 20)
	if _, err := d.service.UpdateVM(access.Caller{}, "a", api.VMUpdate{MemoryLimitBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	m := <-begun
	if m.err != nil {
		t.Fatal(m.err)
	}
	if p, err := m.gpu.Placement(); err != nil || p.Granted != limit {
		t.Errorf("placed with %d bytes, want %d (%v)", p.Granted, limit, err)
	}
}

// TestNamedGPUKeepsGrants: a guest gets no GPU, whoever chose it, whose memory contexts that float have.
func TestNamedGPUKeepsGrants(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	if _, err := d.floating("a").NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 40 << 20}}); err != nil {
		t.Fatal(err)
	}
	spec := func(name string, limit uint64) api.VMSpec {
		return api.VMSpec{Name: name, GPU: "gpu0", BAR2Bytes: 16 << 20, MemoryLimitBytes: limit}
	}
	if _, err := d.client.CreateVM(t.Context(), spec("large", 24<<20+1)); !errors.Is(err, api.ErrNoRoom) {
		t.Errorf("beyond what is not granted: %v", err)
	}
	// Limits of guests on one GPU may exceed its memory, and one without is promised nothing.
	for name, limit := range map[string]uint64{"fits": 24 << 20, "too": 24 << 20, "unlimited": 0} {
		d.createVM(spec(name, limit))
	}
}

// TestSettingsOfAGuestThatLeaves: a change that meets a guest's end leaves nothing of it in the table of
// tasks.
func TestSettingsOfAGuestThatLeaves(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	d.floating("a")
	g := d.guest("a")
	if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	d.service.admitTasks(g) // what a change does once it is saved
	var err error
	d.service.tasks.locked(func(x *tasks.Table) {
		r := tasks.Request{TaskRequest: abi.TaskRequest{Memory: 1}}
		err = x.Submit(d.service.clock.Now(), tasks.Key{Guest: "a"}, r)
	})
	if !errors.Is(err, tasks.ErrUnknownGuest) {
		t.Errorf("the guest is there after its end: %v", err)
	}
}

// TestExecutorsOfTheSilent: what a guest had whose process ended while no daemon ran is another's once its
// executors have ended, or are stuck for too long.
func TestExecutorsOfTheSilent(t *testing.T) {
	dir := runDir(t)
	d := startDaemonOf(t, dir, roomyGPU{}, statefile.Files{}, "gpu0")
	v := d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Float: true})
	if _, err := attach(t, v.Socket).NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 40 << 20}}); err != nil {
		t.Fatal(err)
	}
	executors := d.executors("a")
	if len(executors) != 1 {
		t.Fatalf("executors: %v", executors)
	}
	saved, err := readState(d.service.guestDir("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range executors {
		if !slices.Contains(saved.executors(), pid) {
			t.Errorf("executor %d is not among %v", pid, saved.executors())
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	d.stop()
	// A user that no other process has.
	const user = 0x7ea5_0017
	saved.Spec.Sandbox = &ipc.Sandbox{UID: user, GID: user}
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.service.guestDir("a"), stateFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	// One that does not end, although its parent has.
	stuck := exec.Command("sleep", "600")
	stuck.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stuck.Process.Kill() // it may have ended
		_ = stuck.Wait()
	})
	// Its process is killed by the next daemon, which can't contact it without its socket.
	if err := os.Remove(filepath.Join(d.service.guestDir("a"), vm.ControlSocket)); err != nil {
		t.Fatal(err)
	}
	usual := executorsEndLimit
	executorsEndLimit = time.Minute
	t.Cleanup(func() { executorsEndLimit = usual })
	var ends atomic.Bool
	done := make(chan struct{})
	before := descriptorsOf(t, stuck.Process.Pid)
	go func() {
		defer close(done)
		until(t, "its process is killed", func() bool { return ended(v.PID) })
		until(t, "its executor is waited for", func() bool { return descriptorsOf(t, stuck.Process.Pid) > before })
		ends.Store(true)
		if err := stuck.Process.Kill(); err != nil {
			t.Error(err)
		}
	}()
	d = startDaemonOf(t, dir, roomyGPU{}, statefile.Files{}, "gpu0")
	until(t, "the guest is gone", func() bool {
		_, err := d.service.VM("a")
		return errors.Is(err, api.ErrNotFound)
	})
	if !ends.Load() {
		t.Error("what an executor has is another's before it has ended")
	}
	<-done
}

// descriptorsOf returns how many descriptors of a process the test has, the daemon's among them.
func descriptorsOf(t *testing.T, pid int) (n int) {
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Error(err)
	}
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), fmt.Sprintf("\nPid:\t%d\n", pid)) { // else it was closed meanwhile
			n++
		}
	}
	return n
}

// TestTermsHoldOnAllGPUs: what a guest that floats is granted, when it is created and later, holds on
// each of its GPUs, whose schedulers know it as a guest of their own.
func TestTermsHoldOnAllGPUs(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0", "gpu1", "gpu2")
	d.createVM(api.VMSpec{Name: "a", BAR2Bytes: 16 << 20, Float: true, Weight: 4, Cap: 0.75})
	all := d.guest("a").all()
	if len(all) != 3 {
		t.Errorf("on %d GPUs", len(all))
	}
	hold := func(when string, weight, limit float64) {
		t.Helper()
		for _, p := range all {
			until(t, "its terms on "+p.device.config.Name+" "+when, func() bool {
				page, sched := p.page.Terms(), p.sched.Terms()
				return page.Weight == weight && page.Cap == limit && sched.Weight == weight && sched.Cap == limit
			})
		}
	}
	hold("from the start", 4, 0.75)
	weight, limit := 3.0, 0.5
	if _, err := d.client.UpdateVM(t.Context(), "a", api.VMUpdate{Weight: &weight, Cap: &limit}); err != nil {
		t.Fatal(err)
	}
	hold("later", weight, limit)
}

// TestPlainMemoryOfAFloatingGuest: what a guest's processes say that its contexts have which don't float
// is kept from others, but no more than the guest may have beside what it was granted.
func TestPlainMemoryOfAFloatingGuest(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	dev := d.floatingWithin("a", 30<<20)
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{Task: &driver.Task{MemoryBytes: 20 << 20}}); err != nil {
		t.Fatal(err)
	}
	g := d.guest("a")
	says := func(memory uint64) {
		t.Helper()
		m := g.page.Memory(7, 1<<40)
		m.Give(g.page.Context(7).MemoryTaken())
		m.Give(-memory) // no daemon and no limit is asked
		if got := g.page.Context(7).MemoryTaken(); got != memory {
			t.Fatalf("the page says %d bytes, want %d", got, memory)
		}
	}
	for _, c := range []struct{ says, pinned uint64 }{{0, 0}, {6 << 20, 6 << 20}, {30 << 20, 10 << 20}, {1 << 39, 10 << 20}} {
		says(c.says)
		d.service.admission.Lock()
		got := d.service.taskGPUs()[0].Pinned
		d.service.admission.Unlock()
		if got != c.pinned {
			t.Errorf("it says %d bytes, and %d are kept for it, want %d", c.says, got, c.pinned)
		}
	}
	says(0)
}
