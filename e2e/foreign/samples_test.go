package foreign

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/vfio/pci"
	"vgpud/vfio/vfiouser"
	"vgpud/vfio/vfiouser/vfiousertest"
)

// startSample runs a sample server of libvfio-user until the test ends, and attaches to it.
func startSample(t *testing.T, variable string, o vfiouser.ClientOptions) (*vfiouser.Client, string) {
	t.Helper()
	program, ok := os.LookupEnv(variable)
	if !ok {
		t.Skipf("%s names no program: scripts/foreign.sh builds it from a checkout of libvfio-user", variable)
	}
	path := filepath.Join(t.TempDir(), "sample.sock")
	cmd := exec.Command(program, path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return attach(t, path, o), path
}

// attach attaches to a server that may not listen yet.
func attach(t *testing.T, path string, o vfiouser.ClientOptions) *vfiouser.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		sock, err := net.Dial("unix", path)
		if err == nil {
			c, err := vfiouser.NewClient(ctx, sock.(*net.UnixConn), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// TestGPIOSample drives samples/gpio-pci-idio-16. It has 16 pins in BAR2, each of which counts the
// writes of its bit and reads as one if their number is divisible by three, and an INTx.
func TestGPIOSample(t *testing.T) {
	c, path := startSample(t, "VGPUD_FOREIGN_GPIO", vfiouser.ClientOptions{})
	info, err := c.DeviceInfo()
	if want := uint32(vfiouser.DeviceFlagPCI | vfiouser.DeviceFlagReset); err != nil || info.Flags != want || info.NumRegions != vfiouser.NumRegions {
		t.Fatalf("device %+v (%v)", info, err)
	}
	for index, want := range map[uint32]uint64{vfiouser.RegionBAR0: 0, vfiouser.RegionBAR2: 256, vfiouser.RegionConfig: pci.SpaceBytes} {
		r, areas, err := c.RegionInfo(index)
		if err != nil || r.Size != want || areas != nil {
			t.Errorf("region %d: %+v, %v (%v), want %d bytes", index, r, areas, err, want)
		}
	}
	if id, err := c.ReadUint32(vfiouser.RegionConfig, pci.VendorID); err != nil || id != 0x0dc8_494f {
		t.Errorf("ids %#x (%v)", id, err)
	}
	pins := func() [2]byte {
		var p [2]byte
		if err := errors.Join(c.RegionRead(vfiouser.RegionBAR2, 1, p[:1]), c.RegionRead(vfiouser.RegionBAR2, 5, p[1:])); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for i, want := range [][2]byte{{0xff, 0xff}, {0xfe, 0x7f}, {0xfe, 0x7f}, {0xff, 0xff}} {
		if got := pins(); got != want {
			t.Errorf("pins % x after %d writes, want % x", got, i, want)
		}
		if err := errors.Join(c.RegionWrite(vfiouser.RegionBAR2, 0, []byte{0x01}), c.RegionWrite(vfiouser.RegionBAR2, 4, []byte{0x80})); err != nil {
			t.Fatal(err)
		}
	}
	e, err := vfiouser.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := errors.Join(c.EnableIRQs(vfiouser.IRQINTx, 0, e), c.TriggerIRQs(vfiouser.IRQINTx, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if n, err := e.Wait(t.Context()); n != 1 || err != nil {
		t.Errorf("%d interrupts (%v)", n, err)
	}
	var refused *vfiouser.Error
	for what, err := range map[string]error{
		"access outside a region": c.RegionRead(vfiouser.RegionBAR2, 256, make([]byte, 1)),
		"absent region":           c.RegionRead(vfiouser.RegionBAR0, 0, make([]byte, 1)),
		"absent vector":           c.EnableIRQs(vfiouser.IRQINTx, 1, e),
	} {
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ram := vfiousertest.Memfd(t, 1<<20)
	err = errors.Join(
		c.DMAMap(vfiouser.DMAMap{Flags: vfiouser.DMAMapFlagRead | vfiouser.DMAMapFlagWrite, Addr: 0, Size: 1 << 20}, ram),
		c.DMAMap(vfiouser.DMAMap{Flags: vfiouser.DMAMapFlagRead, Addr: 1 << 30, Size: 4096}, nil),
		c.DMAUnmap(0, 1<<20), c.DMAUnmapAll(), c.DisableIRQ(vfiouser.IRQINTx), c.Reset())
	if err != nil {
		t.Error(err)
	}
	c.Close()
	again := attach(t, path, vfiouser.ClientOptions{})
	if _, err := again.DeviceInfo(); err != nil {
		t.Errorf("a second client: %v", err)
	}
}

// TestServerSample drives samples/server. It has a clock in BAR0 that triggers an interrupt at a
// set time, and then accesses its client's memory through a mapping and by messages, and a BAR1
// that is mapped in part.
func TestServerSample(t *testing.T) {
	mem := &memory{bytes: make([]byte, 4096), read: make(chan uint64, 16)}
	c, _ := startSample(t, "VGPUD_FOREIGN_SERVER", vfiouser.ClientOptions{DMA: mem})
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context()) }()

	_, areas, err := c.RegionInfo(vfiouser.RegionBAR1)
	if err != nil || len(areas) != 2 || areas[0] != (vfiouser.SparseMmapArea{Size: 4096}) || areas[1].Offset != 8192 {
		t.Fatalf("BAR1 may be mapped at %v (%v)", areas, err)
	}
	m, err := c.Map(vfiouser.RegionBAR1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RegionWrite(vfiouser.RegionBAR1, 8192, []byte("by a message")); err != nil {
		t.Fatal(err)
	}
	if got := m.Bytes(8192, 12); string(got) != "by a message" {
		t.Errorf("the mapping shows %q", got)
	}
	copy(m.Bytes(0, 9), "by memory")
	got := make([]byte, 9)
	if err := c.RegionRead(vfiouser.RegionBAR1, 0, got); err != nil || string(got) != "by memory" {
		t.Errorf("a message shows %q (%v)", got, err)
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}

	mapped := vfiousertest.Memfd(t, 4096)
	e, err := vfiouser.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const rw = vfiouser.DMAMapFlagRead | vfiouser.DMAMapFlagWrite
	err = errors.Join(
		c.DMAMap(vfiouser.DMAMap{Flags: rw, Addr: 0, Size: 4096}, nil),
		c.DMAMap(vfiouser.DMAMap{Flags: rw, Addr: 4096, Size: 4096}, mapped),
		c.EnableIRQs(vfiouser.IRQINTx, 0, e),
		c.WriteUint64(vfiouser.RegionBAR0, 0, uint64(time.Now().Unix()+1)))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.Wait(t.Context()); n != 1 || err != nil {
		t.Errorf("%d interrupts (%v)", n, err)
	}
	// The last action of the sample is to read the second half of what it wrote. While it waits for
	// replies itself it can't handle requests.
	for addr := uint64(0); addr != 2048; {
		select {
		case addr = <-mem.read:
		case err := <-served:
			t.Fatalf("the sample has gone: %v", err)
		}
	}
	var want []byte
	for _, letter := range "ABCD" {
		want = append(want, bytes.Repeat([]byte{byte(letter)}, 1024)...)
	}
	if !bytes.Equal(mem.copy(), want) {
		t.Error("what came by messages is wrong")
	}
	direct := make([]byte, 4096)
	if _, err := mapped.ReadAt(direct, 0); err != nil || !bytes.Equal(direct, want) {
		t.Errorf("what came by the mapping is wrong (%v)", err)
	}
	c.Close()
	if err := <-served; !errors.Is(err, vfiouser.ErrClosed) {
		t.Errorf("served until %v", err)
	}
}

// memory is a client's memory that a device accesses by messages.
type memory struct {
	mu    sync.Mutex
	bytes []byte
	read  chan uint64 // addresses of reads
}

func (m *memory) at(addr uint64, n int) ([]byte, error) {
	if addr > uint64(len(m.bytes)) || uint64(n) > uint64(len(m.bytes))-addr {
		return nil, syscall.EFAULT
	}
	return m.bytes[addr:][:n], nil
}

func (m *memory) DMARead(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.at(addr, len(p))
	copy(p, b)
	m.read <- addr
	return err
}

func (m *memory) DMAWrite(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.at(addr, len(p))
	copy(b, p)
	return err
}

func (m *memory) copy() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.bytes)
}
