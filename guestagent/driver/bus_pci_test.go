package driver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/vfio"
	"vgpud/guestagent/vfio/vfiotest"
	"vgpud/mediator/vgpu/abi"
)

// function is a PCI function of a fake sysfs.
type function struct {
	vendor, device, class string
	driver, group         string
	noBAR2                bool
	bar4                  bool // an event area
}

var ours = function{vendor: "0x7667", device: "0x0001", class: "0x120000"}

const address = "0000:00:10.0"

// tree makes a fake root with PCI functions, given by address.
func tree(t testing.TB, functions map[string]function) driver.PCI {
	t.Helper()
	root := t.TempDir()
	for address, f := range functions {
		dir := filepath.Join(root, "sys/bus/pci/devices", address)
		check(t, os.MkdirAll(dir, 0o755))
		bar2 := fmt.Sprintf("0x0000000080000000 0x%016x 0x000000000014220c", 0x80000000+abi.MinSharedBytes-1)
		if f.noBAR2 {
			bar2 = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
		}
		none := "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
		bar4 := none
		if f.bar4 {
			bar4 = fmt.Sprintf("0x0000000090000000 0x%016x 0x000000000014220c\n", 0x90000000+abi.EventAreaBytes-1)
			check(t, os.WriteFile(filepath.Join(dir, "resource4"), make([]byte, abi.EventAreaBytes), 0o644))
		}
		for name, text := range map[string]string{
			"vendor": f.vendor + "\n", "device": f.device + "\n", "class": f.class + "\n", "enable": "0\n",
			"resource":        "0x00000000fea00000 0x00000000fea0ffff 0x0000000000040200\n" + none + bar2 + "\n" + none + bar4 + none + none,
			"resource0":       string(registers()),
			"resource2":       string(make([]byte, abi.MinSharedBytes)),
			"driver_override": "(null)\n",
		} {
			check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		if f.driver != "" {
			check(t, os.Symlink("../../../bus/pci/drivers/"+f.driver, filepath.Join(dir, "driver")))
		}
		if f.group != "" {
			groups := filepath.Join(root, "sys/kernel/iommu_groups", f.group)
			check(t, os.MkdirAll(groups, 0o755))
			check(t, os.Symlink(groups, filepath.Join(dir, "iommu_group")))
		}
	}
	return driver.PCI{Root: root, Heartbeat: time.Millisecond, BusyTimeout: -1}
}

func dir(p driver.PCI, file ...string) string {
	return filepath.Join(append([]string{p.Root, "sys/bus/pci/devices"}, file...)...)
}

// registers returns BAR0 of a device that answers and does nothing.
func registers() []byte {
	b := make([]byte, abi.BAR0Size)
	for reg, v := range map[int]uint32{
		abi.RegMagic: abi.Magic, abi.RegVersion: uint32(abi.Newest), abi.RegOldestVersion: uint32(abi.Oldest),
		abi.RegContexts: 2, abi.RegChannels: 3, abi.RegMaxRingEntries: 1024,
		abi.RegSharedBytesLo: abi.MinSharedBytes, abi.RegHeaderBytes: uint32(abi.HeaderBytes(3)),
		abi.RegMemoryBytesHi: 1, abi.RegPollWindowNanos: 1000, abi.RegUUID + 4: 0x11223344,
	} {
		binary.LittleEndian.PutUint32(b[reg:], v)
	}
	return b
}

// withVFIO binds the tree's function to vfio-pci.
func withVFIO(t *testing.T) (driver.PCI, *vfiotest.Kernel) {
	f := ours
	f.driver, f.group = "vfio-pci", "7"
	p := tree(t, map[string]function{address: f})
	k := &vfiotest.Kernel{Address: address, Vectors: 32}
	k.BARs[0], k.BARs[2] = dir(p, address, "resource0"), dir(p, address, "resource2")
	p.Kernel = k
	return p, k
}

var wantInfo = driver.Info{
	Version: abi.Newest, Contexts: 2, Channels: 3, MaxRingEntries: 1024,
	SharedBytes: abi.MinSharedBytes, MemoryBytes: 1 << 32, PollWindow: 1000,
	UUID: [abi.UUIDBytes]byte{4: 0x44, 0x33, 0x22, 0x11}, Address: address,
}

func TestPolling(t *testing.T) {
	p := tree(t, map[string]function{
		"0000:00:01.0": {vendor: "0x8086", device: "0x0001", class: "0x120000"},
		address:        ours,
		"0000:00:11.0": {vendor: "0x7667", device: "0x0001", class: "0x030000"},
	})
	bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
	if way, why := bus.Access(); way != driver.AccessPolling || why == nil || !strings.Contains(why.Error(), "vfio-pci is not loaded") {
		t.Errorf("Access: %v because %v", way, why)
	}
	if on := must[[]byte](t)(os.ReadFile(dir(p, address, "enable"))); string(on)[:1] != "1" {
		t.Errorf("the function is not enabled: %q", on)
	}
	if v := must[uint32](t)(bus.Read(abi.RegReset)); v != abi.ResetMagic {
		t.Errorf("the device was not reset")
	}
	if _, err := driver.OpenPCI(t.Context(), p, address); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("second OpenPCI: %v", err)
	}
	let := p
	let.BusyTimeout = time.Minute
	later := make(chan *driver.PCIBus)
	go func() {
		b, err := driver.OpenPCI(t.Context(), let, address)
		if err != nil {
			t.Errorf("OpenPCI that waits: %v", err)
		}
		later <- b
	}()
	dev := must[*driver.Device](t)(driver.Open(t.Context(), bus))
	if got := dev.Info(); got != wantInfo {
		t.Errorf("Info = %+v, want %+v", got, wantInfo)
	}
	if v := must[uint32](t)(bus.Read(abi.RegSelectVersion)); v != uint32(abi.Newest) {
		t.Errorf("version selected: %#x", v)
	}
	check(t, dev.Close())
	if next := <-later; next != nil {
		check(t, next.Close())
	}
	if err := bus.Doorbell(uint32(abi.Doorbell(0))); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("doorbell after Close: %v", err)
	}
}

func TestVFIO(t *testing.T) {
	for _, granted := range []int{0, 1} {
		p, k := withVFIO(t)
		k.Granted = granted
		bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, "00:10.0"))
		if way, why := bus.Access(); way != driver.AccessVFIO || why != nil {
			t.Errorf("Access: %v because %v", way, why)
		}
		want := wantInfo
		if want.Vectors = granted; granted == 0 {
			want.Vectors = 32
		}
		dev := must[*driver.Device](t)(driver.Open(t.Context(), bus))
		if got := dev.Info(); got != want {
			t.Errorf("Info = %+v, want %+v", got, want)
		}
		last := want.Vectors - 1
		if last > 0 { // the driver waits for vector 0
			check(t, k.Raise(vfio.IRQMSI, last))
			check(t, bus.Wait(t.Context(), last))
		}
		check(t, dev.Close())
		if n := k.OpenFiles(); n != 0 {
			t.Errorf("%d descriptors are left", n)
		}
	}
}

// TestLetGo removes devices in each way that a PCI function can go away. The driver must notice and
// release it, and calls must not fault until it is closed.
func TestLetGo(t *testing.T) {
	overwrite := func(t *testing.T, p driver.PCI, with byte) {
		t.Helper()
		f := must[*os.File](t)(os.OpenFile(dir(p, address, "resource0"), os.O_WRONLY, 0))
		_, err := f.WriteAt([]byte{with, with, with, with}, abi.RegMagic)
		check(t, errors.Join(err, f.Close()))
	}
	for name, c := range map[string]struct {
		vfio  bool
		leave func(t *testing.T, p driver.PCI, k *vfiotest.Kernel)
		want  string
	}{
		"asked to, vfio": {true, func(t *testing.T, _ driver.PCI, k *vfiotest.Kernel) { check(t, k.Raise(vfio.IRQReq, 0)) }, "unplugged"},
		"ones, vfio":     {true, func(t *testing.T, p driver.PCI, _ *vfiotest.Kernel) { overwrite(t, p, 0xff) }, "read as ones"},
		"ones, polling":  {false, func(t *testing.T, p driver.PCI, _ *vfiotest.Kernel) { overwrite(t, p, 0xff) }, "read as ones"},
		"zeros, vfio":    {true, func(t *testing.T, p driver.PCI, _ *vfiotest.Kernel) { overwrite(t, p, 0) }, "do not read as a virtual GPU's"},
		"faults, polling": {false, func(t *testing.T, p driver.PCI, _ *vfiotest.Kernel) {
			check(t, os.Truncate(dir(p, address, "resource0"), 0))
		}, "fault at"},
	} {
		t.Run(name, func(t *testing.T) {
			p, k := withVFIO(t)
			if !c.vfio {
				p = tree(t, map[string]function{address: ours})
			}
			bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
			dev := must[*driver.Device](t)(driver.Open(t.Context(), bus))
			c.leave(t, p, k)
			// A context never becomes ready on this device, so only the device's end ends this
			// call.
			_, err := dev.NewContext(t.Context(), driver.ContextOptions{})
			if !errors.Is(err, driver.ErrGone) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewContext: %v, want %q", err, c.want)
			}
			<-bus.Done()
			if err := bus.Write(abi.RegError, 0); !errors.Is(err, driver.ErrGone) {
				t.Errorf("Write: %v", err)
			}
			bus.Shared()[abi.MinSharedBytes-1] = 1 // would fault on memory that is gone
			check(t, dev.Close())
			if n := k.OpenFiles(); n != 0 {
				t.Errorf("%d descriptors are left", n)
			}
		})
	}
}

// TestSharedFaults removes the rings' memory while a goroutine waits.
func TestSharedFaults(t *testing.T) {
	p := tree(t, map[string]function{address: ours})
	bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
	dev := must[*driver.Device](t)(driver.Open(t.Context(), bus))
	check(t, os.Truncate(dir(p, address, "resource2"), 0))
	if _, err := dev.NewContext(t.Context(), driver.ContextOptions{}); !errors.Is(err, driver.ErrGone) || !strings.Contains(err.Error(), "fault at") {
		t.Errorf("NewContext: %v", err)
	}
	check(t, dev.Close())
}

func TestOpenPCIErrors(t *testing.T) {
	two := tree(t, map[string]function{address: ours, "0000:00:11.0": ours})
	noRoom, taken := ours, ours
	noRoom.noBAR2, taken.driver = true, "uio_pci_generic"
	odd := tree(t, map[string]function{
		address: noRoom, "0000:00:11.0": taken, "0000:00:12.0": {vendor: "0x8086", device: "0x1", class: "0x0"}, "0000:00:13.0": ours,
	})
	check(t, os.Truncate(dir(odd, "0000:00:13.0", "resource0"), 4096))
	dead := tree(t, map[string]function{address: ours})
	check(t, os.WriteFile(dir(dead, address, "config"), []byte{0xff, 0xff, 0xff, 0xff}, 0o644))
	busy, k := withVFIO(t)
	k.Busy = true
	forced := two
	forced.Access = driver.AccessVFIO
	noPCI := driver.PCI{Root: t.TempDir()}
	for name, c := range map[string]struct {
		p       driver.PCI
		address string
		is      error
		want    string
	}{
		"no PCI":       {noPCI, "", driver.ErrNoDevice, "no PCI function is 7667:0001, class 120000; does the VM have one?"},
		"several":      {two, "", driver.ErrSeveral, "name one of 0000:00:10.0, 0000:00:11.0"},
		"nothing":      {two, "0000:00:1f.0", driver.ErrNoDevice, "nothing is there"},
		"odd address":  {two, "../../../etc", driver.ErrNoDevice, "nothing is there"},
		"another's":    {odd, "0000:00:12.0", driver.ErrNoDevice, "the function there is not"},
		"no room":      {odd, address, driver.ErrNoRoom, "pref64-reserve=512M"},
		"taken":        {odd, "0000:00:11.0", nil, "kernel driver uio_pci_generic has it"},
		"short BAR0":   {odd, "0000:00:13.0", nil, "has 4096 bytes, want 65536"},
		"in use":       {busy, "", driver.ErrBusy, "another process has the device"},
		"dead":         {dead, "", driver.ErrGone, "the host's process is gone"},
		"without vfio": {forced, address, nil, "vfio-pci is not loaded (modprobe vfio-pci)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := driver.OpenPCI(t.Context(), c.p, c.address)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("OpenPCI: %v, want %q", err, c.want)
			}
		})
	}
	busy.BusyTimeout = time.Hour
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := driver.OpenPCI(short, busy, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("OpenPCI of what another process keeps: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := driver.OpenPCI(over, two, address); !errors.Is(err, context.Canceled) {
		t.Errorf("OpenPCI with an ended context: %v", err)
	}
}

// TestNotOurs opens other devices with our IDs.
func TestNotOurs(t *testing.T) {
	p := tree(t, map[string]function{address: ours})
	check(t, os.WriteFile(dir(p, address, "resource0"), make([]byte, abi.BAR0Size), 0o644))
	bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
	if _, err := driver.Open(t.Context(), bus); err == nil || !strings.Contains(err.Error(), "magic 0x0") {
		t.Errorf("Open: %v", err)
	}
}

// TestPermission opens a device as a user who may see it but not open it.
func TestPermission(t *testing.T) {
	p := tree(t, map[string]function{address: ours})
	unprivileged(t, p.Root, func() {
		bus, err := driver.OpenPCI(t.Context(), p, "")
		if err != nil {
			t.Errorf("with permission: %v", err)
			return
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
	check(t, os.Chmod(dir(p, address, "resource0"), 0))
	unprivileged(t, p.Root, func() {
		if _, err := driver.OpenPCI(t.Context(), p, ""); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "vgpu-agent") {
			t.Errorf("without permission: %v", err)
		}
	})
}

// unprivileged calls f as a user who is not root and owns everything under root, a directory of the
// test.
func unprivileged(t *testing.T, root string, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	check(t, os.Chmod(filepath.Dir(root), 0o755))
	check(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestDoorbellAllocatesNothing(t *testing.T) {
	p := tree(t, map[string]function{address: ours})
	p.Heartbeat = time.Hour
	bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
	if n := testing.AllocsPerRun(100, func() { check(t, bus.Doorbell(uint32(abi.Doorbell(0)))) }); n != 0 {
		t.Errorf("a doorbell allocates %v times", n)
	}
	check(t, bus.Close())
}

// TestEventAreaOfPCI: a function with BAR4 has an event area, whose descriptor is that of the area
// alone, and one without has none.
func TestEventAreaOfPCI(t *testing.T) {
	for _, has := range []bool{true, false} {
		f := ours
		f.bar4 = has
		p := tree(t, map[string]function{address: f})
		p.Access = driver.AccessPolling
		bus := must[*driver.PCIBus](t)(driver.OpenPCI(t.Context(), p, ""))
		file, err := bus.EventArea()
		if has != (err == nil) || has != (len(bus.Events()) == abi.EventAreaBytes) {
			t.Errorf("BAR4 %v: %d bytes, %v", has, len(bus.Events()), err)
		}
		if has {
			bus.Events()[5] = 7
			b := make([]byte, 6)
			if _, err := file.ReadAt(b, 0); err != nil || b[5] != 7 {
				t.Errorf("the descriptor shows %v, %v", b, err)
			}
			if st, err := file.Stat(); err != nil || st.Size() != abi.EventAreaBytes {
				t.Errorf("the descriptor is of %v, %v", st, err)
			}
		}
		check(t, bus.Close())
	}
}
