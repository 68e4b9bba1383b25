package qemu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/vfio/qemu"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// find returns the files that VMs need. These tests fail without them.
func find(t *testing.T) qemu.Deps {
	t.Helper()
	deps, err := qemu.Find("")
	if err != nil {
		t.Fatal(err)
	}
	return deps
}

// patient returns a context for operations that take a guest seconds, on a machine that may be
// busy.
func longContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts a VM that is closed with the test. Its output is logged if the test fails.
func start(ctx context.Context, t *testing.T, o qemu.Options) *qemu.VM {
	t.Helper()
	var log syncBuffer
	o.Deps, o.Log = find(t), &log
	vm, err := qemu.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the VM's log:\n%s", log.String())
		}
	})
	return vm
}

// syncBuffer is a buffer that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func ready(ctx context.Context, t *testing.T, vm *qemu.VM) {
	t.Helper()
	if err := vm.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

func look(ctx context.Context, t *testing.T, vm *qemu.VM, paths ...string) string {
	t.Helper()
	out, err := vm.Output(ctx, append([]string{"/init", "look"}, paths...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// forever starts a program that doesn't end by itself.
func forever(ctx context.Context, t *testing.T, vm *qemu.VM) *qemu.Process {
	t.Helper()
	// The kernel's log has no end.
	p, err := vm.Run(ctx, qemu.Command{Args: []string{"/init", "look", "/dev/kmsg"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A VM's whole life, with devices that are plugged, stay and are unplugged.
func TestLife(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	first, second, third := serveDevice(t, "first"), serveDevice(t, "second"), serveDevice(t, "third")
	ctx := longContext(t)
	vm := start(ctx, t, qemu.Options{
		Name: "life", IOMMU: true, SparePorts: 1,
		Devices: []qemu.Device{first.on(""), second.on("")},
	})
	ready(ctx, t, vm)

	const bus = "/sys/bus/pci/devices/"
	for _, slot := range []string{"0000:00:10.0", "0000:00:11.0"} {
		got := look(ctx, t, vm, bus+slot+"/vendor", bus+slot+"/device", bus+slot+"/class")
		if want := "0x1f5a\n0x0001\n0x120000\n"; got != want {
			t.Errorf("the guest sees %q at %s, want %q", got, slot, want)
		}
		// vfio-pci is available, and with the IOMMU a device has a group.
		look(ctx, t, vm, bus+slot+"/iommu_group", "/sys/bus/pci/drivers/vfio-pci/module")
	}
	if _, err := vm.Output(ctx, "/init", "look", "/nothing"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a program that fails: %v", err)
	}
	if _, err := vm.Output(ctx, "nothing"); err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("a program that isn't there: %v", err)
	}

	// A hot-plugged device's large BAR fits the addresses that the port reserves.
	if err := vm.Plug(ctx, third.on(qemu.SparePort(0))); err != nil {
		t.Fatal(err)
	}
	// The function is visible before its addresses are assigned.
	var begin, end uint64
	for begin == 0 {
		out, err := vm.Output(ctx, "/init", "look", bus+"0000:01:00.0/resource")
		if err == nil {
			_, err = fmt.Sscan(strings.Split(out, "\n")[2], &begin, &end)
		}
		if ctx.Err() != nil {
			t.Fatalf("BAR2 of the plugged device has no place: %v", err)
		}
	}
	if end-begin+1 != 64<<20 {
		t.Errorf("BAR2 of the plugged device is at %#x to %#x", begin, end)
	}
	if err := vm.Unplug(ctx, third.id); err != nil {
		t.Fatal(err)
	}
	<-third.gone

	// A reset ends programs and leaves the devices.
	p := forever(ctx, t, vm)
	if err := vm.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("the program of the last boot ended with %v", err)
	}
	ready(ctx, t, vm)
	look(ctx, t, vm, bus+"0000:00:11.0/vendor")

	// A crash does, too; the guest restarts by itself.
	p = forever(ctx, t, vm)
	if err := vm.Crash(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil {
		t.Error("the program of the last boot ended well")
	}
	if !strings.Contains(vm.Console(), "Kernel panic") {
		t.Errorf("the guest's last words are no panic's: %s", vm.Console())
	}
	ready(ctx, t, vm)
	for _, d := range []*device{first, second} {
		if attached, detached, resets := d.Counts(); attached != 1 || detached != 0 || resets < 3 {
			t.Errorf("device %s: %d times attached, %d detached, %d resets", d.id, attached, detached, resets)
		}
	}

	if err := vm.PowerOff(ctx); err != nil {
		t.Fatal(err)
	}
	<-first.gone
	<-second.gone
	if err := vm.Ready(ctx); err == nil || !strings.Contains(err.Error(), "QEMU has ended") {
		t.Errorf("a VM that is off: %v", err)
	}
}

func TestADeviceThatIsNotThere(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "none.sock")
	_, err := qemu.Start(longContext(t), qemu.Options{Deps: find(t), Name: "lonely", Devices: []qemu.Device{{ID: "x", Socket: path}}})
	if err == nil || !strings.Contains(err.Error(), "start VM lonely") || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("%v", err)
	}
}

// A start that hangs in a device's server ends with its context.
func TestAStartEndsWithItsContext(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	deps := find(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "mute.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		c, err := l.Accept() // QEMU has connected and waits
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		cancel(why)
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Read(make([]byte, 1<<10)) // until QEMU ends
	}()
	if _, err := qemu.Start(ctx, qemu.Options{Deps: deps, Devices: []qemu.Device{{ID: "x", Socket: l.Addr().String()}}}); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}

func TestAKilledQEMUIsSaid(t *testing.T) {
	vfiousertest.CheckLeaks(t)
	d := serveDevice(t, "orphan")
	ctx := longContext(t)
	vm := start(ctx, t, qemu.Options{Devices: []qemu.Device{d.on("")}})
	booted := make(chan error, 1)
	go func() { booted <- vm.Ready(ctx) }()
	event := vm.Expect(qemu.Named("DEVICE_DELETED"))
	if err := vm.Kill(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"boot":    <-booted,
		"event":   func() error { _, err := event.Wait(ctx); return err }(),
		"command": vm.Execute(ctx, "query-status", nil, nil),
		"end":     vm.Wait(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	<-d.gone
}

// parentEnv makes this test's program start a VM, print its PID, and wait.
const parentEnv = "VGPUD_TEST_QEMU_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		deps, err := qemu.Find("")
		if err == nil {
			var vm *qemu.VM
			if vm, err = qemu.Start(context.Background(), qemu.Options{Deps: deps, Dir: os.Getenv(parentEnv)}); err == nil {
				fmt.Println(vm.PID())
				select {}
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestQEMUDiesWithItsParent(t *testing.T) {
	find(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err, parent.Wait())
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			t.Errorf("QEMU lives on (%v)", err)
		}
		break
	}
	_ = parent.Wait() // it was killed
}
