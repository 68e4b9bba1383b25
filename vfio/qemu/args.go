package qemu

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Slots of the root complex that devices and ports are put into.
const (
	firstDeviceSlot = 0x10
	firstPortSlot   = 0x18
)

// kernelArgs is every guest's kernel command line. After the console come: no
// waiting in a panic, and no patching of mitigations and locks, calibration of
// clocks and self-tests of ciphers. The functions that are left out (self-tests
// of a source of randomness, tables for tracing and probes, the kernel's
// certificates) are a third of what Debian's 6.12 executes until its init runs.
const kernelArgs = "console=ttyS0 quiet panic=-1 mitigations=off noreplace-smp tsc=reliable no_timer_check cryptomgr.notests " +
	"initcall_blacklist=jent_mod_init,trace_eval_init,init_kprobe_trace,load_system_certificate_list"

// machine is without the parts that a guest would only look for: a disk
// controller, a keyboard's, a sensors' bus, VMware's port, a second timer.
const machine = "q35,sata=off,i8042=off,smbus=off,vmport=off,hpet=off"

// socketAddress is QEMU's SocketAddress of a unix socket.
type socketAddress struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// deviceJSON is a device as -device and device_add take it. Only the JSON form
// has room for the socket, an object of its own.
type deviceJSON struct {
	Driver string        `json:"driver"`
	ID     string        `json:"id"`
	Bus    string        `json:"bus,omitempty"`
	Addr   string        `json:"addr,omitempty"`
	Socket socketAddress `json:"socket"`
	// Patience is how long QEMU waits for a reply, in milliseconds. It forgets the request
	// then, and the connection breaks when the reply comes.
	Patience int `json:"x-msg-timeout"`
}

// patience is long beside the end of a guest's executors, which a reset waits for. It is
// what package domain gives devices.
const patience = 60_000

func (d Device) json(bus, addr string) deviceJSON {
	return deviceJSON{Driver: "vfio-user-pci", ID: d.ID, Bus: bus, Addr: addr, Socket: socketAddress{Path: d.Socket, Type: "unix"}, Patience: patience}
}

// files are the descriptors that QEMU inherits, by their numbers in QEMU.
type files struct {
	monitor, qmp, console, guest int
}

// args is QEMU's command line for o, whose defaults are filled in.
func (o Options) args(f files) ([]string, error) {
	mem := fmt.Sprintf("%dM", o.MemoryMiB)
	args := []string{
		"-name", "guest=" + escape(o.Name),
		"-accel", o.Accel,
		"-cpu", o.CPU,
		"-smp", strconv.Itoa(o.CPUs),
		"-m", mem,
		"-object", "memory-backend-memfd,id=mem,size=" + mem + ",share=on",
		"-machine", machine + ",memory-backend=mem",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", o.Deps.Kernel,
		"-initrd", o.Deps.Initramfs,
		"-append", strings.TrimSpace(kernelArgs + " " + o.Append),
	}
	// Inherited sockets, unlike named ones, exist before QEMU starts and end with either side.
	for _, c := range []struct {
		id, how, use string
		fd           int
	}{
		{"monitor", ",server=on,wait=off", "-qmp", f.monitor},
		{"qmp", ",server=on,wait=off", "-qmp", f.qmp},
		{"console", "", "-serial", f.console},
		{"guest", "", "-serial", f.guest},
	} {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d%s", c.id, c.fd, c.how), c.use, "chardev:"+c.id)
	}
	if o.IOMMU {
		// It has to come before the devices that it is for.
		args = append(args, "-device", "intel-iommu,intremap=on,caching-mode=on")
	}
	for i := range o.SparePorts {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,bus=pcie.0,addr=%#x,chassis=%d,slot=%d,pref64-reserve=%dM",
			SparePort(i), firstPortSlot+i, i+1, i+1, o.ReserveMiB))
	}
	for i, d := range o.Devices {
		bus, addr := d.Bus, ""
		if bus == "" {
			bus, addr = "pcie.0", fmt.Sprintf("%#x", firstDeviceSlot+i)
		}
		b, err := json.Marshal(d.json(bus, addr))
		if err != nil {
			return nil, fmt.Errorf("qemu: device %s: %w", d.ID, err)
		}
		args = append(args, "-device", string(b))
	}
	if o.Stopped {
		args = append(args, "-S")
	}
	return append(args, o.Args...), nil
}

// SparePort is the id of the n-th spare port, for [Device.Bus].
func SparePort(n int) string { return fmt.Sprintf("spare%d", n) }

// escape makes s a value in one of QEMU's comma-separated lists.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }
