package qemu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// someDeps are paths that no test opens.
var someDeps = Deps{QEMU: "/d/qemu", Kernel: "/d/vmlinux", Initramfs: "/d/initramfs.cpio"}

// always is the part of the command line that no option changes.
const always = `-machine q35,sata=off,i8042=off,smbus=off,vmport=off,hpet=off -nodefaults -no-user-config -display none ` +
	`-kernel /d/vmlinux -initrd /d/initramfs.cpio -append `

const serials = `-chardev socket,id=monitor,fd=3,server=on,wait=off -qmp chardev:monitor ` +
	`-chardev socket,id=qmp,fd=4,server=on,wait=off -qmp chardev:qmp ` +
	`-chardev socket,id=console,fd=5 -serial chardev:console -chardev socket,id=guest,fd=6 -serial chardev:guest`

func TestCommandLine(t *testing.T) {
	const plain = "-name guest=vm -accel tcg -cpu qemu64,+rdrand -smp 1 -m 128M "
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing asked for", Options{}, plain + always + kernelArgs + " " + serials},
		{"size", Options{Name: "a,b", MemoryMiB: 96, CPUs: 2, Accel: "kvm", CPU: "host"},
			"-name guest=a,,b -accel kvm -cpu host -smp 2 -m 96M " + always + kernelArgs + " " + serials},
		{"additions", Options{Append: "panic=0", Args: []string{"-trace", "x"}, Stopped: true}, plain + always + kernelArgs + " panic=0 " + serials + " -S -trace x"},
		{"devices", Options{IOMMU: true, SparePorts: 2, Devices: []Device{{ID: "a", Socket: "/s,1"}, {ID: "b", Socket: `/"2`, Bus: "spare1"}, {ID: "c", Socket: "/3"}}},
			plain + always + kernelArgs + " " + serials +
				` -device intel-iommu,intremap=on,caching-mode=on` +
				` -device pcie-root-port,id=spare0,bus=pcie.0,addr=0x18,chassis=1,slot=1,pref64-reserve=512M` +
				` -device pcie-root-port,id=spare1,bus=pcie.0,addr=0x19,chassis=2,slot=2,pref64-reserve=512M` +
				` -device {"driver":"vfio-user-pci","id":"a","bus":"pcie.0","addr":"0x10","socket":{"path":"/s,1","type":"unix"},"x-msg-timeout":60000}` +
				` -device {"driver":"vfio-user-pci","id":"b","bus":"spare1","socket":{"path":"/\"2","type":"unix"},"x-msg-timeout":60000}` +
				` -device {"driver":"vfio-user-pci","id":"c","bus":"pcie.0","addr":"0x12","socket":{"path":"/3","type":"unix"},"x-msg-timeout":60000}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Deps = someDeps
			o, err := c.o.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			args, err := o.args((&sockets{}).numbers())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, strings.Join(args, " ")); d != "" {
				t.Error("-want +got", d)
			}
		})
	}
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	dev := Device{ID: "a", Socket: "/s"}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no Deps are given"},
		{Options{Deps: someDeps, MemoryMiB: 8}, "a guest of 8 MiB can't boot"},
		{Options{Deps: someDeps, CPUs: -1}, "-1 processors"},
		{Options{Deps: someDeps, ReserveMiB: 100}, "a power of two is wanted"},
		{Options{Deps: someDeps, SparePorts: MaxSparePorts + 1}, "9 spare ports"},
		{Options{Deps: someDeps, Name: "a\nb"}, "can't be said to QEMU"},
		{Options{Deps: someDeps, Devices: []Device{dev, dev}}, "devices need ids of their own"},
		{Options{Deps: someDeps, Devices: []Device{{Socket: "/s"}}}, "devices need ids of their own"},
		{Options{Deps: someDeps, Devices: []Device{{ID: "a"}}}, "device a has no socket"},
		{Options{Deps: someDeps, Devices: make([]Device, MaxDevices+1)}, "9 devices are over the limit of 8"},
	} {
		if _, err := Start(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

func TestFindSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"unpacked", "qemu", "vmlinux", "initramfs.cpio", "root"} {
		_, err := Find(dir)
		if err == nil || !strings.Contains(err.Error(), "make vm-deps") || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("VGPUD_VM_DEPS", dir)
	d, err := Find("")
	if err != nil || d.Dir != dir || d.Kernel != filepath.Join(dir, "vmlinux") {
		t.Errorf("%+v, %v", d, err)
	}
}

// Lines are logged once and complete, however the text is divided into writes, and the last ones
// are kept.
func TestLinesAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text, want []string
		for i := range rapid.IntRange(0, 60).Draw(t, "lines") {
			line := fmt.Sprintf("%d %s", i, strings.Repeat("x", rapid.IntRange(0, 2*maxLineSize).Draw(t, "length")))
			text = append(text, line+rapid.SampledFrom([]string{"\n", "\r\n", "\n\n"}).Draw(t, "end"))
			want = append(want, line[:min(len(line), maxLineSize)])
		}
		var log bytes.Buffer
		l := &lines{prefix: "p: ", log: &sharedLog{w: &log}}
		for rest := strings.Join(text, ""); rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "write")
			if _, err := l.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		all := ""
		for _, w := range want {
			all += "p: " + w + "\n"
		}
		if d := cmp.Diff(all, log.String()); d != "" {
			t.Fatal("-want +got", d)
		}
		if got, want := l.String(), strings.Join(want[max(0, len(want)-keptLines):], "\n"); got != want {
			t.Fatalf("kept %q, want %q", got, want)
		}
	})
}
