package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"vgpud/vfio/qemu/console"
)

const (
	// plan is the work of a guest to which nobody sends requests, because its host gives it one
	// serial port only. An initramfs that has this file makes such a guest.
	plan = "/plan.json"
	// worker does the work that its standard input describes.
	worker = "/bin/demoguest"
)

// unattended has the worker do the plan, and report on the kernel's console, until the power button
// is pressed; it returns only on an error. A worker that ends does not end the guest.
func unattended(c *children) error {
	f, err := os.Open(plan)
	if err != nil {
		return err
	}
	p, err := c.start([]string{worker}, nil, [3]*os.File{f, os.Stdout, os.Stderr})
	if err != nil {
		return fmt.Errorf("start %s: %w", worker, err)
	}
	go func() {
		status := <-p.status
		log.Printf("%s has ended: %s", worker, describeStatus(status))
	}()
	button, err := openPowerButton("/")
	if err != nil {
		log.Printf("the power button is not heard: %v", err)
		select {}
	}
	if err := awaitPress(button); err != nil {
		return fmt.Errorf("%s: %w", button.Name(), err)
	}
	log.Print("the power button was pressed")
	return power(console.PowerOff)
}

// openPowerButton opens the input device of the power button, which the modules button and evdev make,
// under a root directory. A guest may have keyboards, too.
func openPowerButton(root string) (*os.File, error) {
	names, err := filepath.Glob(filepath.Join(root, "sys/class/input/event*/device/name"))
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(name)) == "Power Button" {
			event := filepath.Base(filepath.Dir(filepath.Dir(path)))
			return os.Open(filepath.Join(root, "dev/input", event))
		}
	}
	return nil, fmt.Errorf("none of %d input devices is one", len(names))
}

// struct input_event of 64-bit Linux: a time, and then type, code and value.
const (
	inputEventSize = 24
	evKey          = 1   // EV_KEY
	keyPower       = 116 // KEY_POWER
)

// awaitPress reads input events until KEY_POWER is pressed.
func awaitPress(r io.Reader) error {
	var e [inputEventSize]byte
	for {
		if _, err := io.ReadFull(r, e[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		kind, code, value := binary.LittleEndian.Uint16(e[16:]), binary.LittleEndian.Uint16(e[18:]), binary.LittleEndian.Uint32(e[20:])
		if kind == evKey && code == keyPower && value == 1 {
			return nil
		}
	}
}
