package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/guestagent/driver"
	"vgpud/internal/proctest"
	"vgpud/mediator/api"
	"vgpud/mediator/executor"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
	guestproc "vgpud/mediator/vm"
)

const ms = time.Millisecond

// roleVariable names the environment variable that makes this binary one of the daemon's processes.
const roleVariable = "VGPUD_TEST_ROLE"

// handlesVariable names the environment variable that gives executors' contexts handles.
const handlesVariable = "VGPUD_TEST_HANDLES"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "vm":
		err = runVM()
	case "exec":
		err = runExec()
	case "liar":
		err = runLiar()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func inRole(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func roleLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// runVM does what `vgpud vm` does.
func runVM() error {
	var b StartupConfig
	if err := json.NewDecoder(os.Stdin).Decode(&b); err != nil {
		return err
	}
	report := os.NewFile(3, "report")
	if b.Spec.Name == "refused" {
		_, err := fmt.Fprintln(report, "no room for it")
		return err
	}
	sockets, err := guestproc.Inherit(4)
	if err != nil {
		return err
	}
	owner := b.Owner()
	return guestproc.Run(context.Background(), guestproc.Options{
		Spec: b.Spec, Sockets: sockets, Owner: &owner, Log: slog.New(slog.DiscardHandler), Command: func() *exec.Cmd { return inRole("exec") },
		PollWindow: executor.PollWindow, Features: executor.Features,
		Ready: func() error {
			_, err := fmt.Fprintln(report, ReadyLine)
			return errors.Join(err, report.Close())
		},
	})
}

// runExec does what `vgpud exec` does, with a GPU of its own.
func runExec() error {
	conn, err := ipc.FromFile(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	return executor.Serve(context.Background(), conn, func(context.Context, ipc.GPU) (gpu.Device, error) {
		d, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
		if err != nil || os.Getenv(handlesVariable) == "" {
			return d, err
		}
		return handledGPU{d}, nil
	}, roleLog())
}

// idleGPU is a GPU that does nothing, for the daemon to watch.
type idleGPU struct{ clock.Real }

func (idleGPU) Properties() gpu.Properties    { return gpu.Properties{Name: "idle", SMs: 4} }
func (g idleGPU) Now() (time.Duration, error) { return g.Real.Now(), nil }
func (idleGPU) Close() error                  { return nil }

func (idleGPU) NewContext(context.Context, gpu.ContextOptions) (gpu.Context, error) {
	return nil, gpu.ErrUnsupported
}

func (g idleGPU) Source() (accounting.Source, error) { return idleSource(g), nil }

type idleSource struct{ clock.Real }

func (s idleSource) Sample() (accounting.Status, error) {
	return accounting.Status{Clock: s.Now()}, nil
}

// daemon is a Service that runs.
type daemon struct {
	t       *testing.T
	service *Service
	device  gpu.Monitor
	files   statefile.Files
	config  Config
	client  *api.Client
	stop    func() // once, and waits
}

func startDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	return startDaemonOn(t, dir, idleGPU{})
}

// startDaemonOn starts a daemon that watches the test's GPU.
func startDaemonOn(t *testing.T, dir string, device gpu.Monitor) *daemon {
	t.Helper()
	return startDaemonWith(t, dir, device, statefile.Files{})
}

// startDaemonWith starts a daemon whose GPU and disk are the test's.
func startDaemonWith(t *testing.T, dir string, device gpu.Monitor, files statefile.Files) *daemon {
	t.Helper()
	return startDaemonOf(t, dir, device, files, "gpu0")
}

// startDaemonOf starts a daemon with GPUs of these names, which are one.
func startDaemonOf(t *testing.T, dir string, device gpu.Monitor, files statefile.Files, gpus ...string) *daemon {
	t.Helper()
	return startDaemonRecording(t, dir, "", device, files, gpus...)
}

// startDaemonRecording is startDaemonOf with a path of the record of usage; "" is the default.
func startDaemonRecording(t *testing.T, dir, record string, device gpu.Monitor, files statefile.Files, gpus ...string) *daemon {
	t.Helper()
	return startDaemonThat(t, dir, device, files, func(c *Config) { c.Usage.Path = record }, gpus...)
}

// startDaemonConfigured starts a daemon whose configuration the test changes.
func startDaemonConfigured(t *testing.T, dir string, change func(*Config)) *daemon {
	t.Helper()
	return startDaemonThat(t, dir, idleGPU{}, statefile.Files{}, change, "gpu0")
}

// startDaemonAtOnce starts a daemon that does not wait for the guests of the last one.
func startDaemonAtOnce(t *testing.T, dir string) *daemon {
	t.Helper()
	d := newDaemon(t, dir, idleGPU{}, statefile.Files{}, func(*Config) {}, "gpu0")
	d.service.contactLimit = 0
	d.run()
	return d
}

func startDaemonThat(t *testing.T, dir string, device gpu.Monitor, files statefile.Files, change func(*Config), gpus ...string) *daemon {
	t.Helper()
	d := newDaemon(t, dir, device, files, change, gpus...)
	d.run()
	return d
}

func newDaemon(t *testing.T, dir string, device gpu.Monitor, files statefile.Files, change func(*Config), gpus ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, device: device, files: files, config: Config{RunDir: dir, StateDir: dir, Socket: filepath.Join(dir, "vgpud.sock")}}
	for _, name := range gpus {
		d.config.GPUs = append(d.config.GPUs, GPUConfig{
			Name: name, Kind: "soft", Socket: "unused", Policy: "none", Accounting: AccountingConfig{Poll: 1, Quiet: 50 * ms, Round: 50 * ms},
		})
	}
	change(&d.config)
	var err error
	if d.service, err = New(t.Context(), d.options()); err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs a new daemon until the test ends, and returns when its API answers.
func (d *daemon) run() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- d.service.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		d.t.Fatal(err)
	}
	d.client = api.NewClient(d.config.Socket)
	d.stop = sync.OnceFunc(func() {
		d.client.Close()
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(d.stop)
}

func (d *daemon) options() Options {
	return Options{
		Config: d.config, Log: slog.New(slog.DiscardHandler), Version: "test",
		Open:    func(context.Context, ipc.GPU) (gpu.Monitor, error) { return d.device, nil },
		Command: func() *exec.Cmd { return inRole("vm") },
		Files:   d.files,
	}
}

// runDir returns a directory with a short path, since paths of sockets have to be short.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vgpud-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// create creates a guest, which ends with the test.
func (d *daemon) create(name string) api.VM {
	d.t.Helper()
	return d.createVM(api.VMSpec{Name: name, BAR2Bytes: 16 << 20})
}

func (d *daemon) createVM(spec api.VMSpec) api.VM {
	d.t.Helper()
	v, err := d.client.CreateVM(d.t.Context(), spec)
	if err != nil {
		d.t.Fatal(err)
	}
	d.endWithTest(v)
	return v
}

// endWithTest has a guest end with the test. It would live on without the daemon.
func (d *daemon) endWithTest(v api.VM) {
	d.t.Cleanup(func() {
		if err := unix.Kill(v.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			d.t.Error(err)
		}
	})
}

// guest returns the daemon's half of a guest.
func (d *daemon) guest(name string) *guest {
	d.t.Helper()
	g, err := d.service.guest(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

// charge charges a guest GPU time. A phase in which one of its contexts had the GPU would also stand
// for the time before that the daemon's own sampler did not watch. An empty one ends, so that the bill
// has what the guest's executors have counted.
func (d *daemon) charge(name string, used time.Duration) {
	d.t.Helper()
	d.guest(name).sched.ChargeUnwatched(used)
	d.service.devices[0].loop.PollEnded(&accounting.Phase{})
}

func (d *daemon) vm(name string) api.VM {
	d.t.Helper()
	v, err := d.client.VM(d.t.Context(), name)
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

// executors returns the processes of a guest's contexts by slot.
func (d *daemon) executors(name string) map[int]int {
	d.service.mu.RLock()
	defer d.service.mu.RUnlock()
	pids := make(map[int]int)
	for i := range ipc.MaxContexts {
		if pid := d.service.guests[name].page.Context(i).PID(); pid != 0 {
			pids[i] = pid
		}
	}
	return pids
}

// until waits until ask returns true.
func until(t *testing.T, what string, ask func() bool) {
	t.Helper()
	proctest.Until(t, what, ask)
}

// ended reports whether a process is gone, or is a zombie.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// holdings returns how many descriptors and goroutines the test process has.
func holdings(t *testing.T) (descriptors, goroutines int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries), runtime.NumGoroutine()
}

// attach attaches to a virtual GPU as a guest does.
func attach(t *testing.T, socket string) *driver.Device {
	t.Helper()
	bus, err := driver.DialVFIOUser(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := driver.Open(t.Context(), bus)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil && !errors.Is(err, driver.ErrGone) {
			t.Error(err)
		}
	})
	return dev
}

// countdown takes one from the word at its parameter, after as many turns of a loop as the word
// says.
const countdown = `.version 8.0
.target sm_80
.address_size 64
.visible .entry countdown(.param .u64 p)
{
	.reg .pred %p1;
	.reg .b32 %r<3>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [%rd1];
	mov.u32 %r2, %r1;
L:
	add.s32 %r2, %r2, -1;
	setp.ne.s32 %p1, %r2, 0;
	@%p1 bra L;
	add.s32 %r1, %r1, -1;
	st.global.u32 [%rd1], %r1;
	ret;
}
`

// job is a context with a kernel and a word of memory for it.
type job struct {
	t    *testing.T
	gpu  *driver.Context
	f    *driver.Function
	word driver.Ptr
}

func newJob(t *testing.T, dev *driver.Device) *job {
	t.Helper()
	c, err := dev.NewContext(t.Context(), driver.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, gpu: c}
	j.load()
	return j
}

func (j *job) load() {
	j.t.Helper()
	m, err := j.gpu.LoadModule(j.t.Context(), []byte(countdown))
	if err == nil {
		j.f, err = m.Function(j.t.Context(), "countdown")
	}
	if err == nil {
		j.word, err = j.gpu.Alloc(j.t.Context(), 4)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// launch starts the kernel with a count.
func (j *job) launch(count uint32) (*driver.Pending, error) {
	ctx := j.t.Context()
	if _, err := j.gpu.Own().Set(ctx, j.word, count, 4, 1); err != nil {
		return nil, err
	}
	return j.gpu.Own().Launch(ctx, j.f, driver.Dim{}, driver.Dim{}, 0, j.word)
}

// works runs the kernel and checks what it did.
func (j *job) works() {
	j.t.Helper()
	p, err := j.launch(100)
	if err == nil {
		err = p.Wait(j.t.Context())
	}
	var b [4]byte
	if err == nil {
		err = j.gpu.CopyOut(j.t.Context(), b[:], j.word)
	}
	if err != nil || b[0] != 99 {
		j.t.Fatalf("counted down to %d: %v", b[0], err)
	}
}

func TestGuestLeavesNothingBehind(t *testing.T) {
	d := startDaemon(t, runDir(t))
	if _, err := d.client.VMs(t.Context()); err != nil { // so that the connection is there
		t.Fatal(err)
	}
	until(t, "the GPU is watched", func() bool {
		gpus, err := d.client.GPUs(t.Context())
		return err == nil && gpus[0].Rounds > 0
	})
	// The daemon's own goroutines and the client's connection appear over time, so the state after
	// the first guest is compared; a leak for each guest would show several times. The prestarted
	// process may exist then or not: its descriptor and the one by which its end is waited for, and its
	// pipes for the configuration, the report and the log.
	const guests, slack = 8, 5
	var files, goroutines int
	for i := range guests { // each has the name of the one before
		if i == 1 {
			files, goroutines = holdings(t)
		}
		v := d.create("a")
		st, err := os.Stat(v.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("the VMM's socket has mode %v", st.Mode())
		}
		if v.KernelTimeLimit != DefaultKernelTimeLimit {
			t.Errorf("kernels may take %v, want %v", v.KernelTimeLimit, DefaultKernelTimeLimit)
		}
		control := filepath.Join(filepath.Dir(v.Socket), guestproc.ControlSocket)
		if st, err := os.Stat(control); err != nil || st.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("the control socket: %v, %v", st, err)
		}
		if _, err := d.client.CreateVM(t.Context(), api.VMSpec{Name: "a"}); !errors.Is(err, api.ErrExists) {
			t.Errorf("a second guest of the name: %v", err)
		}
		bus, err := driver.DialVFIOUser(t.Context(), v.Socket)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := driver.Open(t.Context(), bus)
		if err != nil {
			t.Fatal(err)
		}
		newJob(t, dev).works()
		if v := d.vm("a"); !v.Attached || v.Contexts != 1 || v.Kernels != 1 || v.Commands == 0 {
			t.Errorf("while it works: %+v", v)
		}
		executors := d.executors("a")
		if err := d.client.DeleteVM(t.Context(), "a"); !errors.Is(err, api.ErrInUse) {
			t.Errorf("delete of a guest whose VMM is connected: %v", err)
		}
		if err := d.client.ForceDeleteVM(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if vms, err := d.client.VMs(t.Context()); err != nil || len(vms) != 0 {
			t.Errorf("guests after the delete: %+v, %v", vms, err)
		}
		if _, err := os.Stat(filepath.Dir(v.Socket)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its directory is left: %v", err)
		}
		for _, pid := range executors {
			if !ended(pid) {
				t.Errorf("executor %d is left", pid)
			}
		}
		until(t, "the guest's process is reaped", func() bool { return errors.Is(unix.Kill(v.PID, 0), unix.ESRCH) })
		if err := dev.Close(); err != nil && !errors.Is(err, driver.ErrGone) {
			t.Error(err)
		}
	}
	until(t, "descriptors and goroutines are as before", func() bool {
		f, g := holdings(t)
		return f <= files+slack && g <= goroutines+slack
	})
	if err := d.client.DeleteVM(t.Context(), "a"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("delete of a guest that is gone: %v", err)
	}
}

// TestUnknownGuest: the error about a name that no guest has says which guest may be meant.
func TestUnknownGuest(t *testing.T) {
	d := startDaemon(t, runDir(t))
	d.create("web1")
	d.create("db")
	const list = "`vgpuctl get vms` lists them)"
	for name, hint := range map[string]string{"wbe1": "(do you mean web1? " + list, "WEB-1": "(do you mean web1? " + list, "zebra": "(" + list, strings.Repeat("b", 1000): "(" + list} {
		want := fmt.Sprintf("guest %q: not found %s", name, hint)
		_, read := d.client.VM(t.Context(), name)
		_, changed := d.client.UpdateVM(t.Context(), name, api.VMUpdate{})
		for _, err := range []error{read, changed, d.client.DeleteVM(t.Context(), name)} {
			if !errors.Is(err, api.ErrNotFound) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

func TestGuestThatIsNotCreated(t *testing.T) {
	d := startDaemon(t, runDir(t))
	if err := d.service.closePrestart(); err != nil { // so that each guest starts a process
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec api.VMSpec
		want string
	}{
		"says why":     {api.VMSpec{Name: "refused"}, "no room for it"},
		"bad name":     {api.VMSpec{Name: "../a"}, "name"},
		"bad weight":   {api.VMSpec{Name: "a", Weight: -1}, "weight -1"},
		"bad memory":   {api.VMSpec{Name: "a", BAR2Bytes: 3}, "shared memory of 3 bytes: want a power of two"},
		"no such GPU":  {api.VMSpec{Name: "a", GPU: "gpu7"}, `GPU "gpu7": not found (there are: gpu0)`},
		"not even run": {api.VMSpec{Name: "b"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.spec.Name == "b" {
				command := d.service.o.Command
				d.service.o.Command = func() *exec.Cmd { return exec.Command("/nonexistent") }
				defer func() { d.service.o.Command = command }()
			}
			_, err := d.client.CreateVM(t.Context(), c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	left, err := os.ReadDir(d.service.guestDir(""))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
