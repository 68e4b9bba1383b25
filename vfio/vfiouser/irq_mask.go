package vfiouser

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxMaskers limits the goroutines that wait for a client's maskers. Maskers exist for INTx, which
// has one vector; no known client uses them with more.
const maxMaskers = 64

// masker is an eventfd with which a client masks or unmasks a vector without a message. KVM does so
// when a guest acknowledges an INTx interrupt.
type masker struct{ file *os.File }

// setMaskers replaces the maskers of vectors by the message's descriptors, or removes them if it
// has none. masked selects the eventfds that mask rather than those that unmask.
func (t *irqTable) setMaskers(vectors []vector, masked bool, m *message) error {
	if t.maskers+len(m.fds) > maxMaskers {
		return fmt.Errorf("more than %d eventfds that mask or unmask: %w", maxMaskers, syscall.ENOSPC)
	}
	for _, fd := range m.fds {
		if err := checkEventfd(fd); err != nil {
			return err
		}
	}
	for i := range vectors {
		var f *os.File
		if len(m.fds) > 0 {
			f = os.NewFile(uintptr(m.takeFD(i)), "vfio-user masking eventfd")
		}
		t.setMasker(&vectors[i], masked, f)
	}
	return nil
}

// setMasker replaces one masker; f may be nil.
func (t *irqTable) setMasker(v *vector, masked bool, f *os.File) {
	slot := &v.maskers[0]
	if masked {
		slot = &v.maskers[1]
	}
	if *slot != nil {
		(*slot).file.Close()
		*slot = nil
		t.maskers--
	}
	if f == nil {
		return
	}
	*slot = &masker{f}
	t.maskers++
	t.watching.Go(func() { t.watchMasker(v, masked, f) })
}

// watchMasker masks or unmasks v each time f is signalled, until f is closed. It never reads the
// counter: the client controls whether a read blocks, and the poller reports every signal without a
// read.
func (t *irqTable) watchMasker(v *vector, masked bool, f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	first := true
	_ = raw.Read(func(fd uintptr) bool {
		// The poller calls this once at the beginning and then after each signal.
		if !first || raised(int32(fd)) {
			t.mask(v, masked)
		}
		first = false
		return false
	})
}

// raised reports whether an eventfd's counter is above 0.
func raised(fd int32) bool {
	p := [1]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
	n, err := unix.Poll(p[:], 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
}
