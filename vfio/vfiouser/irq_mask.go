package vfiouser

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxMaskers bounds the goroutines that a client can have wait for its maskers. The form exists for INTx, which has one
// vector; no client that we know uses it with more.
const maxMaskers = 64

// masker is an eventfd by which a client masks or unmasks a vector without a message: KVM does so when a guest acknowledges
// an INTx interrupt.
type masker struct{ file *os.File }

// setMaskers replaces the maskers of vectors by the message's descriptors, or takes them away if it has none. masked says
// which of the two: those that mask or those that unmask.
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

// watchMasker masks or unmasks v each time f is raised, until f is closed. The counter is never read: whether a read would
// block is in the client's hand, and the poller tells of every raise without one.
func (t *irqTable) watchMasker(v *vector, masked bool, f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	first := true
	_ = raw.Read(func(fd uintptr) bool {
		// The poller calls once at the beginning and then after each raise.
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
