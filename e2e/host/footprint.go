package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vgpud/e2e/proc"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// Footprint is what the host's processes hold while a guest is in some state, to compare with what
// they hold afterwards.
type Footprint struct {
	GPU, Daemon, VM int                  // open files of the guest's GPU, the daemon, and its virtual GPU
	files           [3]map[string]string // the same by descriptor, for messages
	Executors       int
	Contexts        int
	Channels        int
	Free            uint64 // bytes of GPU memory, by the GPU's own count
}

// Footprint measures a footprint. observer, a context of another guest, reads the GPU's free
// memory.
func (h *Host) Footprint(vm string, observer *driver.Context) Footprint {
	h.tb.Helper()
	h.Until("the process for the next guest, which the daemon holds, too", h.awaitPrestarted)
	v := h.VM(vm)
	f := Footprint{Contexts: v.Contexts}
	for i, p := range []struct {
		to  *int
		pid int
	}{{&f.GPU, h.gpu(v.GPU).PID()}, {&f.Daemon, h.Daemon.PID()}, {&f.VM, v.PID}} {
		open, err := proc.Open(p.pid)
		if err != nil {
			h.tb.Fatal(err)
		}
		*p.to, f.files[i] = len(open), open
	}
	channels, err := Channels(v.PID)
	if err != nil {
		h.tb.Fatal(err)
	}
	f.Channels = channels
	executors, err := proc.Children(v.PID)
	if err != nil {
		h.tb.Fatal(err)
	}
	f.Executors = len(executors)
	if f.Free, _, err = observer.MemInfo(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
	return f
}

// awaitPrestarted returns nil when the daemon has started a process for the next guest.
func (h *Host) awaitPrestarted() error {
	vms, err := h.Client.VMs(h.tb.Context())
	if err != nil {
		return err
	}
	children, err := proc.Children(h.Daemon.PID())
	if err != nil {
		return err
	}
	for _, pid := range children {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		if bytes.HasSuffix(line, []byte("\x00vm\x00")) && !slices.ContainsFunc(vms, func(v api.VM) bool { return v.PID == pid }) {
			return nil
		}
	}
	return fmt.Errorf("of the daemon's children %v none is one", children)
}

// gpu returns the process of the GPU of that name.
func (h *Host) gpu(name string) *Process {
	h.tb.Helper()
	for i, g := range h.Config.GPUs {
		if g.Name == name {
			return h.GPUs[i]
		}
	}
	h.tb.Fatalf("there is no GPU %q", name)
	return nil
}

// LeftBehind returns an error that lists what is held now and was not when f was measured.
func (f Footprint) LeftBehind(now Footprint) error {
	if now.GPU > f.GPU || now.Daemon > f.Daemon || now.VM > f.VM ||
		now.Executors > f.Executors || now.Contexts > f.Contexts || now.Channels > f.Channels || now.Free < f.Free {
		return fmt.Errorf("before:\n%+v\nnow:\n%+v", f, now)
	}
	return nil
}

// channels is the default number of channels of a virtual GPU.
const channels = 64

// Channels counts the channels in use on the virtual GPU of that process. It reads what the device
// shows its guest in BAR2, which works while a VM has it. Without a VMM there is no BAR2, and no
// channel.
func Channels(pid int) (int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/memfd:vgpu-bar2") {
			n, err := channelsIn(path)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) {
				continue // the VMM has just gone or come
			}
			return n, err
		}
	}
	return 0, nil
}

func channelsIn(bar2 string) (n int, err error) {
	f, err := os.Open(bar2)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var word [4]byte
	for i := range channels {
		if _, err := f.ReadAt(word[:], int64(abi.ChannelPage(i)+abi.ChannelStateWord)); err != nil {
			return 0, fmt.Errorf("read BAR2: %w", err)
		}
		if state, _ := abi.UnpackState[abi.ChannelState](binary.LittleEndian.Uint32(word[:])); state != abi.ChannelFree {
			n++
		}
	}
	return n, nil
}
