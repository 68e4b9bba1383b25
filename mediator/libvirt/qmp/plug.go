package qmp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"vgpud/clock"
)

// pollInterval is the time between checks of what the guest does, for which there is no event.
const pollInterval = 10 * time.Millisecond

// ReplyTimeout is how long QEMU waits for a device's reply before it forgets the request. If the
// reply comes later, QEMU breaks the connection for good, and ends at the guest's next reboot.
// QEMU's default of 5 s is too short for a reset that waits for executors whose GPU is stuck, or
// that frees many gigabytes.
const ReplyTimeout = time.Minute

// ErrStillPlugged means that the device may still be in the VM: QEMU 11.1 may end when the device's
// process does.
var ErrStillPlugged = errors.New("the device may still be in the VM")

// Plug plugs a virtual GPU, whose process listens on a socket, into a port, and waits until the
// guest has given its memory an address. If the guest does not before ctx ends, Plug takes the
// device out again and returns the reason, with [ErrStillPlugged] if the removal is not certain.
func Plug(ctx context.Context, r Runner, c clock.Clock, id string, p Port, socket string) error {
	r = uncancelled{r}
	err := r.Run(ctx, "device_add", map[string]any{
		"driver": Driver, "id": id, "bus": p.ID,
		"socket":        map[string]any{"path": socket, "type": "unix"},
		"x-msg-timeout": ReplyTimeout.Milliseconds(),
	}, nil)
	added := err == nil
	if added {
		err = awaitAddress(ctx, r, c, id, p)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoAddress) {
		err = noAddress(p)
	}
	if !added {
		if kerr := checkDriver(context.WithoutCancel(ctx), r); kerr != nil {
			err = kerr
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	switch there, qerr := present(back, r, id); {
	case qerr != nil:
		return fmt.Errorf("%w; %w: %w", err, ErrStillPlugged, qerr)
	case !there:
		return err
	case !added: // the answer was lost, or it is another device with that id
		return fmt.Errorf("%w; %w", err, ErrStillPlugged)
	}
	if uerr := Unplug(back, r, c, id); uerr != nil {
		return fmt.Errorf("%w; %w: %w", err, ErrStillPlugged, uerr)
	}
	return err
}

// present reports whether the VM has a device with that id.
func present(ctx context.Context, r Runner, id string) (bool, error) {
	devices, err := queryPCI(ctx, r)
	there := false
	walk(devices, func(d *pciDevice) { there = there || d.ID == id })
	return there, err
}

// commandLimit bounds one QEMU command.
const commandLimit = 5 * time.Second

// uncancelled runs commands to their end even if the context ends, because a cancelled command
// would take the connection with it, which is needed to undo everything.
type uncancelled struct{ Runner }

// Run implements [Runner].
func (u uncancelled) Run(ctx context.Context, command string, args, result any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandLimit)
	defer cancel()
	return u.Runner.Run(ctx, command, args, result)
}

// undoLimit bounds the time in which a guest releases a device that it has not configured.
const undoLimit = 10 * time.Second

var errNoAddress = errors.New("the guest has given the device's memory no address")

// QEMU declares these addresses reserved, and so unusable for BARs, to a guest with an AMD
// processor with 40 or more address bits. With exactly 40 bits, firmware places ports' windows
// there.
const (
	hyperTransport    = 0xfd_0000_0000
	hyperTransportEnd = 0x100_0000_0000
)

func noAddress(p Port) error {
	if p.Base >= hyperTransport && p.Base < hyperTransportEnd {
		return fmt.Errorf("no space: port %s is at addresses (%#x) that a guest with an AMD processor with 40 address bits can't use: give it the host's number of bits (<maxphysaddr mode='passthrough'/>, QEMU's host-phys-bits=on), or 39", p.ID, p.Base)
	}
	return fmt.Errorf("no space: the guest has found no addresses for the virtual GPU's memory (BAR2) behind port %s, with room for %d MiB, or has no driver for PCI Express hot-plug; `vgpuctl define` adds a spare port, from the next start on", p.ID, p.Room>>20)
}

// awaitAddress waits until the guest has given BAR2 an address.
func awaitAddress(ctx context.Context, r Runner, c clock.Clock, id string, p Port) error {
	for {
		devices, err := queryPCI(ctx, r)
		if err != nil {
			return err
		}
		ok, err := hasAddress(ctx, r, devices, id, p)
		if ok || err != nil {
			return err
		}
		if clock.Sleep(ctx, c, pollInterval) != nil {
			return errNoAddress
		}
	}
}

// hasAddress reports whether a device's BAR2 has an address. QEMU itself shows it once the guest's
// driver has enabled address decoding; before that the register does.
func hasAddress(ctx context.Context, r Runner, devices []pciDevice, id string, p Port) (bool, error) {
	var dev *pciDevice
	var bridge *pciDevice // the host bridge, always at 00:00.0
	walk(devices, func(d *pciDevice) {
		if d.ID == id {
			dev = d
		}
		if d.Bus == 0 && d.Slot == 0 && d.Function == 0 && bridge == nil {
			bridge = d
		}
	})
	if dev == nil {
		return false, fmt.Errorf("device %s has gone", id)
	}
	for _, region := range dev.Regions {
		if region.BAR == 2 && region.Address != -1 {
			return true, nil
		}
	}
	if bridge == nil {
		return false, nil
	}
	addr, err := readBAR2(ctx, r, bridge, dev)
	// The register is 0 at first, and all ones while the guest sizes the BAR.
	return p.Base <= addr && addr-p.Base < p.Room, err
}

// configSpaces lists the addresses at which SeaBIOS and OVMF place the guest's PCI Express
// configuration space.
var configSpaces = []uint64{0xb000_0000, 0xe000_0000}

// readBAR2 returns the address in a device's BAR2 register; 0 means none.
func readBAR2(ctx context.Context, r Runner, bridge, dev *pciDevice) (uint64, error) {
	for _, base := range configSpaces {
		// The host bridge's identity shows whether the space is here.
		w, err := readWords(ctx, r, base, 1)
		if err != nil {
			return 0, err
		}
		if len(w) != 1 || w[0] != bridge.Ident.Vendor|bridge.Ident.Device<<16 {
			continue
		}
		at := base + uint64(dev.Bus)<<20 + uint64(dev.Slot)<<15 + uint64(dev.Function)<<12
		const bar2, flags = 0x10 + 2*4, 0xf
		if w, err = readWords(ctx, r, at+bar2, 2); err != nil || len(w) != 2 {
			return 0, err
		}
		return uint64(w[1])<<32 | uint64(w[0]&^flags), nil
	}
	return 0, nil
}

var hexWord = regexp.MustCompile(`0x([0-9a-fA-F]{8})\b`)

// readWords reads n words at a guest physical address; fewer if there is no memory.
func readWords(ctx context.Context, r Runner, addr uint64, n int) ([]uint32, error) {
	var text string
	args := map[string]any{"command-line": fmt.Sprintf("xp /%dxw %#x", n, addr)}
	if err := r.Run(ctx, "human-monitor-command", args, &text); err != nil {
		return nil, err
	}
	var all []uint32
	for _, m := range hexWord.FindAllStringSubmatch(text, n) {
		w, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("decode %q: %w", text, err)
		}
		all = append(all, uint32(w))
	}
	return all, nil
}

// Unplug asks the guest to release a device and waits until it has.
func Unplug(ctx context.Context, r Runner, c clock.Clock, id string) error {
	r = uncancelled{r}
	asked := false
	for {
		there, err := present(ctx, r, id)
		if err != nil {
			return err
		}
		if !there {
			if asked {
				return nil
			}
			return fmt.Errorf("the VM has no device %s", id)
		}
		if !asked {
			if err := r.Run(ctx, "device_del", map[string]any{"id": id}, nil); err != nil {
				return err
			}
			asked = true
		}
		if clock.Sleep(ctx, c, pollInterval) != nil {
			return fmt.Errorf("the guest does not release device %s: %w; is it up, and does it support PCI Express hot-plug?", id, context.Cause(ctx))
		}
	}
}
