package driver_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi"
)

// tree makes a fake sysfs of PCI functions: address, then vendor, device, class.
func tree(t *testing.T, functions map[string][3]string) driver.Sysfs {
	t.Helper()
	root := t.TempDir()
	for address, ids := range functions {
		dir := filepath.Join(root, "bus/pci/devices", address)
		check(t, os.MkdirAll(dir, 0o755))
		for i, name := range []string{"vendor", "device", "class"} {
			check(t, os.WriteFile(filepath.Join(dir, name), []byte(ids[i]+"\n"), 0o644))
		}
		check(t, os.WriteFile(filepath.Join(dir, "enable"), []byte("0\n"), 0o644))
		check(t, os.WriteFile(filepath.Join(dir, "resource0"), registers(), 0o644))
		check(t, os.WriteFile(filepath.Join(dir, "resource2"), make([]byte, abi.MinSharedBytes), 0o644))
	}
	return driver.Sysfs{Root: root}
}

// registers is BAR0 of a device that answers and does nothing.
func registers() []byte {
	b := make([]byte, abi.BAR0Size)
	for reg, v := range map[int]uint32{
		abi.RegMagic: abi.Magic, abi.RegVersion: uint32(abi.Newest), abi.RegOldestVersion: uint32(abi.Oldest),
		abi.RegContexts: 2, abi.RegChannels: 3, abi.RegMaxRingEntries: 1024,
		abi.RegSharedBytesLo: abi.MinSharedBytes, abi.RegHeaderBytes: uint32(abi.HeaderBytes(3)),
		abi.RegMemoryBytesHi: 1, abi.RegPollWindowNanos: 1000,
	} {
		binary.LittleEndian.PutUint32(b[reg:], v)
	}
	return b
}

var ours = [3]string{"0x7667", "0x0001", "0x120000"}

func TestSysfs(t *testing.T) {
	fs := tree(t, map[string][3]string{
		"0000:00:01.0": {"0x8086", "0x0001", "0x120000"},
		"0000:00:10.0": ours,
		"0000:00:11.0": {"0x7667", "0x0001", "0x030000"},
	})
	if all := must[[]string](t)(fs.Functions()); len(all) != 1 || all[0] != "0000:00:10.0" {
		t.Fatalf("Functions = %v", all)
	}
	bus := must[driver.Bus](t)(driver.OpenSysfs(fs, ""))
	on := must[[]byte](t)(os.ReadFile(filepath.Join(fs.Root, "bus/pci/devices/0000:00:10.0/enable")))
	if string(on)[:1] != "1" {
		t.Errorf("the function is not enabled: %q", on)
	}
	dev := must[*driver.Device](t)(driver.Open(t.Context(), bus))
	want := driver.Info{
		Version: abi.Newest, Contexts: 2, Channels: 3, MaxRingEntries: 1024,
		SharedBytes: abi.MinSharedBytes, MemoryBytes: 1 << 32, PollWindow: 1000,
	}
	if got := dev.Info(); got != want {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
	if v := must[uint32](t)(bus.Read(abi.RegSelectVersion)); v != uint32(abi.Newest) {
		t.Errorf("version selected: %#x", v)
	}
	check(t, dev.Close())
	if err := bus.Doorbell(uint32(abi.Doorbell(0))); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("doorbell after Close: %v", err)
	}
}

func TestSysfsErrors(t *testing.T) {
	two := tree(t, map[string][3]string{"0000:00:10.0": ours, "0000:00:11.0": ours})
	if _, err := driver.OpenSysfs(two, ""); err == nil || !strings.Contains(err.Error(), "2 virtual GPUs") {
		t.Errorf("with two functions: %v", err)
	}
	dir := filepath.Join(two.Root, "bus/pci/devices/0000:00:11.0")
	check(t, os.Truncate(filepath.Join(dir, "resource0"), 4096))
	if _, err := driver.OpenSysfs(two, "0000:00:11.0"); err == nil || !strings.Contains(err.Error(), "has 4096 bytes, want 65536") {
		t.Errorf("short BAR0: %v", err)
	}
	none := tree(t, nil)
	if _, err := driver.OpenSysfs(none, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a PCI bus: %v", err)
	}
	if _, err := driver.OpenSysfs(two, "../../../etc"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with an odd address: %v", err)
	}
	// A device that is not ours behind our ids.
	other := tree(t, map[string][3]string{"0000:00:10.0": ours})
	check(t, os.WriteFile(filepath.Join(other.Root, "bus/pci/devices/0000:00:10.0/resource0"), make([]byte, abi.BAR0Size), 0o644))
	bus := must[driver.Bus](t)(driver.OpenSysfs(other, ""))
	if _, err := driver.Open(t.Context(), bus); err == nil || !strings.Contains(err.Error(), "magic 0x0") {
		t.Errorf("Open: %v", err)
	}
}
