package sysfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vgpud/guestagent/sysfs"
)

var ids = sysfs.IDs{Vendor: 0x7667, Device: 1, Class: 0x120000}

const address = "0000:01:00.0"

// plant writes files under a new root.
func plant(t *testing.T, files map[string]string) sysfs.FS {
	t.Helper()
	f := sysfs.FS{Root: t.TempDir()}
	for name, text := range files {
		path := f.Path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// device returns a function's files, and more of the machine.
func device(more map[string]string) map[string]string {
	files := map[string]string{
		"vendor": "0x7667\n", "device": "0x0001\n", "class": "0x120000\n", "driver_override": "(null)\n",
		"resource": `0x00000000fea00000 0x00000000fea0ffff 0x0000000000040200
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000380000000000 0x000038000fffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
`,
	}
	all := map[string]string{}
	for name, text := range files {
		all["/sys/bus/pci/devices/"+address+"/"+name] = text
	}
	for name, text := range more {
		all[name] = text
	}
	return all
}

func TestFunctions(t *testing.T) {
	f := plant(t, device(map[string]string{"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"}))
	dir := f.Path("/sys/bus/pci/devices/" + address)
	if err := errors.Join(
		os.Symlink("../../../../bus/pci/drivers/vfio-pci", filepath.Join(dir, "driver")),
		os.MkdirAll(f.Path("/sys/kernel/iommu_groups/0"), 0o755),
		os.WriteFile(f.Path("/sys/kernel/iommu_groups/0/name"), []byte("vfio-noiommu\n"), 0o644),
		os.Symlink(f.Path("/sys/kernel/iommu_groups/0"), filepath.Join(dir, "iommu_group")),
	); err != nil {
		t.Fatal(err)
	}
	got, err := f.Functions(ids)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 1 {
		if got[0].Instance == 0 {
			t.Error("a function of no instance")
		}
		got[0].Instance = 0 // an inode number
	}
	want := []sysfs.Function{{Address: address, Driver: "vfio-pci", Group: "0", NoIOMMU: true}}
	want[0].BARs[0] = sysfs.BAR{Start: 0xfea00000, Bytes: 64 << 10}
	want[0].BARs[2] = sysfs.BAR{Start: 0x380000000000, Bytes: 256 << 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if path := f.GroupPath(got[0]); path != f.Path("/dev/vfio/noiommu-0") {
		t.Errorf("GroupPath: %s", path)
	}
}

// TestNoRoom reads what kernels report for a BAR without an address.
func TestNoRoom(t *testing.T) {
	for name, line := range map[string]string{
		"zeros":     "0x0000000000000000 0x0000000000000000 0x0000000000000000",
		"unset":     "0x0000000000000000 0x000000000fffffff 0x000000002014220c",
		"with base": "0x0000000040000000 0x000000004fffffff 0x000000002014220c",
	} {
		f := plant(t, device(map[string]string{"/sys/bus/pci/devices/" + address + "/resource": strings.Repeat(line+"\n", 7)}))
		got, err := f.Function(address)
		if err != nil || got.BARs != [6]sysfs.BAR{} {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestBind(t *testing.T) {
	drivers := "/sys/bus/pci/drivers/vfio-pci/bind"
	probe := "/sys/bus/pci/drivers_probe"
	unsafe := "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
	for name, c := range map[string]struct {
		more  map[string]string
		want  string
		wrote map[string]string
	}{
		"no vfio-pci": {nil, "modprobe vfio-pci", nil},
		"no IOMMU":    {map[string]string{drivers: ""}, "CONFIG_VFIO_NOIOMMU", nil},
		"refused": {
			map[string]string{drivers: "", probe: "", unsafe: "N\n"}, "did not bind to it",
			map[string]string{unsafe: "Y\n", probe: address, "/sys/bus/pci/devices/" + address + "/driver_override": "vfio-pci"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := plant(t, device(c.more))
			if err := f.Bind(address); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Bind: %v, want %q", err, c.want)
			}
			for path, want := range c.wrote {
				if got, err := os.ReadFile(f.Path(path)); err != nil || !strings.HasPrefix(string(got), want) {
					t.Errorf("%s: %q, %v; want %q", path, got, err, want)
				}
			}
		})
	}
}

func TestBindWhatIsBound(t *testing.T) {
	for driver, want := range map[string]string{"vfio-pci": "", "nouveau": "kernel driver nouveau has it"} {
		f := plant(t, device(nil))
		if err := os.Symlink("/sys/bus/pci/drivers/"+driver, f.Path("/sys/bus/pci/devices/"+address+"/driver")); err != nil {
			t.Fatal(err)
		}
		err := f.Bind(address)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("Bind of what %s has: %v, want %q", driver, err, want)
		}
	}
}
