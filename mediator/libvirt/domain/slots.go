package domain

import (
	"errors"
	"strconv"
	"strings"
)

// firstSlot is the first slot on pcie.0 for vgpud's devices. libvirt assigns its own devices slots
// from 1 up and does not know of vgpud's, so the low slots are left to it.
const (
	firstSlot = 0x10
	lastSlot  = 0x1e // 0x1f is the chipset's
	lowest    = 0x03
)

// usedSlots returns the slots of pcie.0 that the domain's other devices use, each with the name of
// one device.
func (d *document) usedSlots() map[int]string {
	used := make(map[int]string)
	for _, devices := range d.root.children {
		if !devices.is("", "devices") {
			continue
		}
		for _, e := range devices.children {
			if slot, ok := rootSlot(e.child("address")); ok {
				used[slot] = "<" + printable(d.tag(e)) + ">"
			}
		}
	}
	for _, o := range d.deviceOptions() {
		if !o.device.vgpud() && o.device.slot >= 0 && (o.device.bus == rootBus || o.device.bus == "") {
			used[o.device.slot] = "the QEMU argument -device " + printable(o.device.driver)
		}
	}
	return used
}

// rootSlot returns the slot of an address on pcie.0.
func rootSlot(address *element) (int, bool) {
	if address == nil || address.attr("type") != "pci" || number(address.attr("domain")) > 0 || number(address.attr("bus")) > 0 {
		return 0, false
	}
	slot := number(address.attr("slot"))
	return slot, slot >= 0 && slot < 32 && address.attr("slot") != ""
}

// number parses a number of libvirt's, 0x10 or 16; empty is 0, and anything else -1.
func number(s string) int {
	if s == "" {
		return 0
	}
	base := 10
	if hex, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		s, base = hex, 16
	}
	n, err := strconv.ParseUint(s, base, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// freeSlots chooses n slots of pcie.0: from 0x10 up, then from 0x0f down.
func (d *document) freeSlots(n int) ([]int, error) {
	used := d.usedSlots()
	var free []int
	take := func(slot int) {
		if _, taken := used[slot]; !taken && len(free) < n {
			free = append(free, slot)
		}
	}
	for slot := firstSlot; slot <= lastSlot; slot++ {
		take(slot)
	}
	for slot := firstSlot - 1; slot >= lowest; slot-- {
		take(slot)
	}
	if len(free) < n {
		return nil, errors.New("no slot of pcie.0 is left: put some of the domain's devices behind a pcie-root-port")
	}
	return free, nil
}
