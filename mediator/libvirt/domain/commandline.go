package domain

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// qemuNamespace is the namespace of a domain's own arguments to QEMU.
const qemuNamespace = "http://libvirt.org/schemas/domain/qemu/1.0"

const (
	rootBus   = "pcie.0"
	spareID   = "vgpu-spare"
	gpuDriver = "vfio-user-pci"
	// replyTimeoutMillis is how long QEMU waits for the device's replies: see qmp.ReplyTimeout.
	replyTimeoutMillis = 60_000
	// portDriver is a port into which a device can be plugged.
	portDriver = "pcie-root-port"
)

// Device is a virtual GPU on a domain's QEMU command line.
type Device struct {
	// Number is N in its id, vgpuN.
	Number int
	// Slot is its slot on pcie.0, 1 to 31, or -1 if it is elsewhere or QEMU chooses.
	Slot int
	// Socket is the socket that QEMU connects to, RUN_DIR/domains/UUID/gpuN.sock, and UUID the one
	// in it.
	Socket, UUID string
}

// argument is one of a domain's own arguments to QEMU.
type argument struct {
	element *element
	value   string
}

// commandLines returns the elements with the domain's own arguments, usually one.
func (d *document) commandLines() []*element {
	var found []*element
	for _, e := range d.root.children {
		if e.is(qemuNamespace, "commandline") {
			found = append(found, e)
		}
	}
	return found
}

// arguments returns the arguments in a command line's element.
func arguments(commandLine *element) []argument {
	var args []argument
	for _, e := range commandLine.children {
		if e.is(qemuNamespace, "arg") {
			args = append(args, argument{e, e.attr("value")})
		}
	}
	return args
}

// option is a -device with its two arguments.
type option struct {
	flag, value *element
	device      qemuDevice
}

// deviceOptions returns the devices that a domain adds to its QEMU. A -device that may itself be
// the value of the option before it is included, so that an option without its value can't hide one
// of vgpud's devices.
func (d *document) deviceOptions() []option {
	var found []option
	for _, c := range d.commandLines() {
		args := arguments(c)
		for i := 1; i < len(args); i++ {
			if flag := args[i-1]; flag.value == "-device" || flag.value == "--device" {
				found = append(found, option{flag.element, args[i].element, parseQEMUDevice(args[i].value)})
			}
		}
	}
	return found
}

// qemuDevice is the value of a -device, as far as needed here.
type qemuDevice struct {
	driver, id, bus, socket string
	slot                    int // -1: unknown
}

// parseQEMUDevice parses a -device's value, in JSON or as driver,key=value,….
func parseQEMUDevice(s string) qemuDevice {
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		return parseJSONDevice(s)
	}
	q := qemuDevice{slot: -1}
	for i, part := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case i == 0 && !ok:
			q.driver = part
		case key == "driver":
			q.driver = value
		case key == "id":
			q.id = value
		case key == "bus":
			q.bus = value
		case key == "addr":
			q.slot = parseSlot(value)
		}
	}
	return q
}

func parseJSONDevice(s string) qemuDevice {
	var v struct {
		Driver string `json:"driver"`
		ID     string `json:"id"`
		Bus    string `json:"bus"`
		Addr   any    `json:"addr"`
		Socket any    `json:"socket"`
	}
	if json.Unmarshal([]byte(s), &v) != nil {
		return qemuDevice{slot: -1}
	}
	q := qemuDevice{driver: v.Driver, id: v.ID, bus: v.Bus, slot: -1}
	switch addr := v.Addr.(type) {
	case string:
		q.slot = parseSlot(addr)
	case float64: // slot and function in one
		if addr >= 0 && addr < 256 {
			q.slot = int(addr) >> 3
		}
	}
	if socket, ok := v.Socket.(map[string]any); ok {
		q.socket, _ = socket["path"].(string)
	}
	return q
}

// parseSlot parses QEMU's slot.function, in hexadecimal; -1 means none.
func parseSlot(s string) int {
	slot, _, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(strings.TrimPrefix(slot, "0x"), 16, 8)
	if err != nil || n > 31 {
		return -1
	}
	return int(n)
}

// Expressions are compiled when first needed: that takes a good part of a millisecond, which every
// start of a program would pay.
var (
	vgpuID     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^vgpu(0|[1-9][0-9]?)$`) })
	vgpuSocket = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(.*)/domains/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/gpu(0|[1-9][0-9]?)\.sock$`)
	})
)

// gpu returns the device if it is one of vgpud's virtual GPUs.
func (q *qemuDevice) gpu() (Device, bool) {
	id, socket := vgpuID().FindStringSubmatch(q.id), vgpuSocket().FindStringSubmatch(q.socket)
	if q.driver != gpuDriver || id == nil || socket == nil || id[1] != socket[3] {
		return Device{}, false
	}
	number, err := strconv.Atoi(id[1])
	if err != nil {
		return Device{}, false
	}
	v := Device{Number: number, Slot: q.slot, Socket: q.socket, UUID: socket[2]}
	if q.bus != rootBus {
		v.Slot = -1
	}
	return v, true
}

// spare reports whether the device is vgpud's port for plugging.
func (q *qemuDevice) spare() bool { return q.driver == portDriver && q.id == spareID }

// vgpud reports whether Define has written the device.
func (q *qemuDevice) vgpud() bool {
	_, gpu := q.gpu()
	return gpu || q.spare()
}

// SocketPath returns the socket of virtual GPU number n for a domain's VMM.
func SocketPath(runDir, uuid string, n int) string {
	return filepath.Join(runDir, "domains", uuid, "gpu"+strconv.Itoa(n)+".sock")
}

// SparePort is QEMU's id of the port that Define adds, for plugging in a virtual GPU while the
// guest runs.
const SparePort = spareID

// gpuArgument returns the -device value of virtual GPU n.
func gpuArgument(n, slot int, socket string) string {
	type address struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	// Only the JSON form can express the socket's two fields. Only JSON can say the socket's two
	// fields.
	b, err := json.Marshal(struct {
		Driver       string  `json:"driver"`
		ID           string  `json:"id"`
		Bus          string  `json:"bus"`
		Addr         string  `json:"addr"`
		Socket       address `json:"socket"`
		ReplyTimeout int     `json:"x-msg-timeout"`
	}{gpuDriver, "vgpu" + strconv.Itoa(n), rootBus, slotText(slot), address{socket, "unix"}, replyTimeoutMillis})
	if err != nil {
		panic(err) // can't happen
	}
	return string(b)
}

// spareArgument returns the -device value of the spare port, behind which firmware should reserve
// that much room for a prefetchable BAR. libvirt does not assign its chassis: it counts up from 1.
func spareArgument(slot int, reserve uint64) string {
	return portDriver + ",id=" + spareID + ",bus=" + rootBus + ",addr=" + slotText(slot) +
		",chassis=240,pref64-reserve=" + strconv.FormatUint(reserve>>20, 10) + "M"
}

func slotText(slot int) string { return "0x" + strconv.FormatInt(int64(slot), 16) }
