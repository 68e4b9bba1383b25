package vgpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vgpud/internal/futex"
	"vgpud/mediator/vgpu/abi"
)

// eventArea is BAR4: a memfd of its own, of which this process maps only the page with the word that
// executors sleep on while nobody polls for events.
type eventArea struct {
	file *os.File
	page []byte
}

// newEventArea creates BAR4's memory, sealed as BAR2's is and for the same reason.
func newEventArea() (*eventArea, error) {
	file, page, err := newBAR("vgpu-bar4", abi.EventAreaBytes, abi.PageSize)
	if err != nil {
		return nil, err
	}
	return &eventArea{file, page}, nil
}

// kick wakes whoever is to look at the doorbells.
func (a *eventArea) kick() {
	w := abi.AtomicWord(a.page, abi.EventKicksWord)
	w.Add(1)
	futex.Wake(w)
}

// close gives the memory up. It lives on as long as others map it.
func (a *eventArea) close() error {
	if a == nil {
		return nil
	}
	return errors.Join(unix.Munmap(a.page), a.file.Close())
}

// hasEvents reports whether the device has event kernels, and so BAR4.
func (c Config) hasEvents() bool { return c.Features&abi.FeatureEventKernels != 0 }

// Events returns the memfd of BAR4, the event area, or nil if there is none. The device owns it, as
// [Device.Shared] says.
func (d *Device) Events() *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events == nil {
		return nil
	}
	return d.events.file
}

// kickEvents passes a write to an event kernel's doorbell register on: whoever is to look at the
// doorbell word is woken. A register of no event kernel wakes nobody.
func (d *Device) kickEvents(n int) {
	registered := n < abi.MaxEventKernels && d.backend.EventKernel(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !registered || d.events == nil {
		d.regs.count.strayDoorbells++
		return
	}
	d.regs.count.doorbells++
	d.events.kick()
}

// FailEvents shows that the event kernels whose bits are set have ended with their context: its
// process is gone, and no longer says so itself.
func (d *Device) FailEvents(numbers uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events == nil {
		return nil
	}
	for n := range abi.MaxEventKernels {
		if numbers&(1<<n) == 0 {
			continue
		}
		var state [4]byte
		binary.LittleEndian.PutUint32(state[:], uint32(abi.EventFailed))
		if _, err := d.events.file.WriteAt(state[:], int64(abi.EventPage(n)+abi.EventStateWord)); err != nil {
			return fmt.Errorf("end event kernel %d: %w", n, err)
		}
	}
	return nil
}

// clearEvents zeroes the area for a guest that keeps its mapping over a reset. Preconditions: mu is
// held.
func (d *Device) clearEvents() error {
	if d.events == nil {
		return nil
	}
	if err := clearBAR(d.events.file, abi.EventAreaBytes); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}
