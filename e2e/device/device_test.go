package device

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/driver/drivertest"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/vfio/vfiouser"
)

// guest is a served device.
type guest struct {
	dev  *vgpu.Device
	back *backend
	path string
}

func serve(tb testing.TB, window time.Duration) *guest {
	tb.Helper()
	back := &backend{window: window, gpus: map[int]*drivertest.GPU{}, channels: map[int]*executor{}, kernels: map[string]drivertest.Kernel{
		"empty": {},
		"inc":   drivertest.Increment,
	}}
	dev, err := vgpu.New(vgpu.Config{SharedBytes: 16 << 20, Contexts: 4, Channels: 8, Vectors: 8, Features: abi.AllFeatures &^ abi.FeatureEventDoorbells}, back, nil)
	if err != nil {
		tb.Fatal(err)
	}
	back.dev = dev
	path := filepath.Join(tb.TempDir(), "vgpu.sock")
	l, err := vfiouser.Listen(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := &vfiouser.Server{Device: dev, Log: slog.New(slog.DiscardHandler)}
	go func() { done <- server.Serve(ctx, l) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
		if err := dev.Close(); err != nil {
			tb.Error(err)
		}
		back.VectorsChanged(0, 32)
	})
	return &guest{dev, back, path}
}

func (g *guest) open(tb testing.TB) (*driver.Device, *driver.Context) {
	tb.Helper()
	ctx := context.Background()
	bus, err := driver.DialVFIOUser(ctx, g.path)
	if err != nil {
		tb.Fatal(err)
	}
	dev, err := driver.Open(ctx, bus)
	if err != nil {
		tb.Fatal(err)
	}
	gpu, err := dev.NewContext(ctx, driver.ContextOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return dev, gpu
}

// use runs a kernel over some memory and checks it.
func use(t *testing.T, gpu *driver.Context) {
	t.Helper()
	ctx := t.Context()
	const n = 5 << 20
	mem, err := gpu.Alloc(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5}, n/5)
	if err := gpu.CopyIn(ctx, mem, data); err != nil {
		t.Fatal(err)
	}
	mod, err := gpu.LoadModule(ctx, []byte(".version 9.0"))
	if err != nil {
		t.Fatal(err)
	}
	inc, err := mod.Function(ctx, "inc")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := gpu.NewChannel(ctx, driver.ChannelOptions{Priority: -1})
	if err != nil {
		t.Fatal(err)
	}
	var last *driver.Pending
	for range 4 {
		if last, err = ch.Launch(ctx, inc, driver.Dim{X: 5}, driver.Dim{X: 1024}, 0, mem, uint32(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	if err := gpu.CopyOut(ctx, got, mem); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] += 4
	}
	if !bytes.Equal(got, data) {
		t.Error("the kernel's result is wrong")
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
}

func TestEndToEnd(t *testing.T) {
	g := serve(t, 0)
	for range 2 { // the second client gets a fresh device
		dev, gpu := g.open(t)
		use(t, gpu)
		other, err := dev.NewContext(t.Context(), driver.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		use(t, other)
		st := g.dev.Stats()
		if len(st.Contexts) != 2 || st.Contexts[0].State != abi.ContextReady || st.Contexts[0].Tag != uint32(os.Getpid()) || !st.Attached {
			t.Errorf("stats: %+v", st)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	if g.back.kicks == 0 {
		t.Error("no doorbell was ever rung, though the executor does not poll")
	}
}

// TestContextResetOverTheBus makes a context fault, and resets it.
func TestContextResetOverTheBus(t *testing.T) {
	g := serve(t, 0)
	dev, gpu := g.open(t)
	defer dev.Close()
	g.back.Reset() // the executors die
	g.dev.ContextFaulted(g.dev.Stats().Contexts[0].ContextRef, abi.ErrorExecutorLost)
	if _, err := gpu.Alloc(t.Context(), 1); !errors.Is(err, abi.StatusContextLost) {
		t.Errorf("Alloc in a faulted context: %v", err)
	}
	if err := gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	use(t, gpu)
	// The GPU disappears, and comes back.
	g.back.Reset()
	g.dev.ContextFaulted(g.dev.Stats().Contexts[0].ContextRef, abi.ErrorDeviceLost)
	if _, err := gpu.Alloc(t.Context(), 1); !errors.Is(err, abi.StatusDeviceLost) {
		t.Errorf("Alloc without a GPU: %v", err)
	}
	if err := gpu.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	use(t, gpu)
}

// TestGuestDies closes the socket while a guest works: everything is dropped, and the next guest
// finds neither contexts nor another guest's bytes.
func TestGuestDies(t *testing.T) {
	g := serve(t, 0)
	before, goroutines := openFiles(t), 0
	for i := range 5 {
		if i == 1 {
			goroutines = runtime.NumGoroutine()
		}
		client, err := vfiouser.Dial(t.Context(), g.path)
		if err != nil {
			t.Fatal(err)
		}
		bus, err := driver.NewVFIOUserBus(client)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := driver.Open(t.Context(), bus)
		if err != nil {
			t.Fatal(err)
		}
		gpu, err := dev.NewContext(t.Context(), driver.ContextOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shared := bus.Shared()
		if i := slices.IndexFunc(shared[len(shared)/2:], func(b byte) bool { return b != 0 }); i >= 0 {
			t.Error("a new guest finds bytes of the last one")
		}
		copy(shared[len(shared)/2:], "secret")
		ram, err := os.CreateTemp(t.TempDir(), "ram")
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(ram.Truncate(1<<20), client.DMAMap(vfiouser.DMAMap{
			Flags: vfiouser.DMAMapFlagRead | vfiouser.DMAMapFlagWrite, Addr: 0, Size: 1 << 20,
		}, ram), ram.Close())
		if err != nil {
			t.Fatal(err)
		}
		mem, err := gpu.Alloc(t.Context(), 64)
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		if err := gpu.CopyIn(t.Context(), mem, make([]byte, 8<<20)); err == nil {
			t.Error("CopyIn to a device that is gone succeeds")
		}
		_ = dev.Close()
	}
	// The last Detach runs on the server's goroutine, which the next client waits for.
	dev, _ := g.open(t)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	client, err := vfiouser.Dial(t.Context(), g.path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if st := g.dev.Stats(); len(st.Contexts) != 0 || st.Channels != 0 {
		t.Errorf("left behind: %+v", st)
	}
	g.back.VectorsChanged(0, 32) // the backend's duplicates of the last guest's
	if after := openFiles(t); after > before+4 {
		t.Errorf("%d files open, %d before", after, before)
	}
	// Each guest that died had a session, pumps and executors: a leak of any would show four times.
	if after := runtime.NumGoroutine(); after >= goroutines+4 {
		t.Errorf("%d goroutines, %d after the first guest", after, goroutines)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc to count descriptors: ", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return len(names)
}

// TestDeviceResetClearsMemory resets over vfio-user while a channel is open.
func TestDeviceResetClearsMemory(t *testing.T) {
	g := serve(t, 0)
	client, err := vfiouser.Dial(t.Context(), g.path)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := driver.NewVFIOUserBus(client)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := driver.Open(t.Context(), bus)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{}); err != nil {
		t.Fatal(err)
	}
	shared := bus.Shared()
	copy(shared[len(shared)-100:], "old")
	if err := client.Reset(); err != nil {
		t.Fatal(err)
	}
	if shared[len(shared)-100] != 0 {
		t.Error("shared memory keeps its bytes over a reset")
	}
	if abi.LoadWord(shared, abi.DeviceMagicWord) != abi.Magic || abi.LoadWord(shared, abi.DeviceGenerationWord) != 1 {
		t.Error("the device's page is not as after power-on")
	}
	if st := g.dev.Stats(); len(st.Contexts) != 0 || st.Channels != 0 || st.Resets != 1 {
		t.Errorf("after reset: %+v", st)
	}
	client.Close()
	_ = dev.Close()
}

func TestBrokenPutPointer(t *testing.T) {
	g := serve(t, 0)
	dev, gpu := g.open(t)
	defer dev.Close()
	shared, err := unix.Mmap(int(g.dev.Shared().Fd()), 0, abi.HeaderBytes(8), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(shared) }()
	abi.StoreWord(shared, abi.ChannelPage(0)+abi.SubmissionPutWord, 1<<31)
	g.back.Kick(vgpu.ChannelRef{Slot: 0})
	for state := abi.ChannelReady; state == abi.ChannelReady; runtime.Gosched() {
		state, _ = abi.UnpackState[abi.ChannelState](abi.LoadWord(shared, abi.ChannelPage(0)+abi.ChannelStateWord))
	}
	if _, err := gpu.Alloc(t.Context(), 1); !errors.Is(err, abi.ErrorPutRange) {
		t.Errorf("command on a channel with a broken pointer: %v", err)
	}
	ch, err := gpu.NewChannel(t.Context(), driver.ChannelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := ch.Fence(t.Context())
	if err == nil {
		err = f.Wait(t.Context())
	}
	if err != nil {
		t.Errorf("another channel of the same context: %v", err)
	}
}
