package qemu

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Slots of the root complex for devices and ports.
const (
	firstDeviceSlot = 0x10
	firstPortSlot   = 0x18
)

// kernelArgs is the kernel command line of every guest. It disables waiting in a panic, the
// patching of mitigations and locks, the calibration of clocks and the self-tests of ciphers. The
// blacklisted functions (self-tests of a source of randomness, tables for tracing and probes, the
// kernel's certificates) are a third of what Debian's 6.12 executes before init runs.
const kernelArgs = "console=ttyS0 quiet panic=-1 mitigations=off noreplace-smp tsc=reliable no_timer_check cryptomgr.notests " +
	"initcall_blacklist=jent_mod_init,trace_eval_init,init_kprobe_trace,load_system_certificate_list"

// machine lacks the parts that a guest would only probe: a disk controller, a keyboard controller,
// a sensor bus, VMware's port, a second timer.
const machine = "q35,sata=off,i8042=off,smbus=off,vmport=off,hpet=off"

// socketAddress is QEMU's SocketAddress of a unix socket.
type socketAddress struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// deviceJSON is a device in the form that -device and device_add accept. Only the JSON form can
// express the socket, which is an object.
type deviceJSON struct {
	Driver string        `json:"driver"`
	ID     string        `json:"id"`
	Bus    string        `json:"bus,omitempty"`
	Addr   string        `json:"addr,omitempty"`
	Socket socketAddress `json:"socket"`
	// MsgTimeout is how long QEMU waits for a reply, in milliseconds. It then forgets the request,
	// and the connection breaks when the reply arrives.
	MsgTimeout int `json:"x-msg-timeout"`
}

// msgTimeout is long enough for the end of a guest's executors, which a reset waits for. Package
// mediator/libvirt gives devices the same value.
const msgTimeout = 60_000

func (d Device) json(bus, addr string) deviceJSON {
	return deviceJSON{Driver: "vfio-user-pci", ID: d.ID, Bus: bus, Addr: addr, Socket: socketAddress{Path: d.Socket, Type: "unix"}, MsgTimeout: msgTimeout}
}

// files are the descriptors that QEMU inherits, by their numbers in QEMU.
type files struct {
	monitor, qmp, console, guest int
}

// args returns QEMU's command line for o, whose defaults are filled in.
func (o Options) args(f files) ([]string, error) {
	args := []string{
		"-name", "guest=" + escape(o.Name),
		"-accel", o.Accel,
		"-cpu", o.CPU,
		"-smp", strconv.Itoa(o.CPUs),
		"-m", fmt.Sprintf("%dM", o.MemoryMiB), // private: the virtual GPU does no DMA
		"-machine", machine,
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", o.Deps.Kernel,
		"-initrd", o.Deps.Initramfs,
		"-append", strings.TrimSpace(kernelArgs + " " + o.Append),
	}
	// Inherited sockets, unlike named ones, exist before QEMU starts and are closed with either
	// side.
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
		// The IOMMU must come before the devices behind it.
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

// SparePort returns the ID of the n-th spare port, for [Device.Bus].
func SparePort(n int) string { return fmt.Sprintf("spare%d", n) }

// escape escapes s for one of QEMU's comma-separated lists.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }
