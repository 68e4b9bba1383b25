package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/internal/memfd"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// setupFiles are the files that come with a setup.
type setupFiles struct {
	bar2, page *os.File
	suspension *os.File // what the daemon suspends the guest by before it has the page; nil: nothing
	saved      *os.File // what a context is made anew from; nil: it is a new one
	events     *os.File // the event area, BAR4; nil: the guest has none
}

// parseSetup returns the setup that a message has, and its files. They are the caller's, unless there is
// an error.
func parseSetup(m *ipc.Message) (s ipc.Setup, f setupFiles, err error) {
	if n := len(m.Files); m.Kind != ipc.KindSetup || n < 2 || n > 5 {
		return s, f, fmt.Errorf("first message is %q with %d files, want %q with 2 to 5", m.Kind, n, ipc.KindSetup)
	}
	if err := errors.Join(m.Decode(&s), checkSetup(&s)); err != nil {
		return s, f, err
	}
	// The files are in this order: BAR2, the page, the suspension's, what was saved, the event area.
	// Only the setup tells which of the last three there are, but for the suspension's.
	f.bar2, f.page = m.Files[0], m.Files[1]
	rest := m.Files[2:]
	last := func(has bool) (file *os.File) {
		if n := len(rest); has && n > 0 {
			file, rest = rest[n-1], rest[:n-1]
		}
		return file
	}
	f.events, f.saved = last(s.Events), last(s.Saved)
	f.suspension = last(true)
	if len(rest) > 0 || s.Events && f.events == nil || s.Saved && f.saved == nil {
		return s, setupFiles{}, fmt.Errorf("setup with %d files, event area: %v, saved: %v", len(m.Files), s.Events, s.Saved)
	}
	return s, f, nil
}

// close closes the files that nobody took over.
func (f *setupFiles) close() (err error) {
	for _, file := range []*os.File{f.bar2, f.page, f.suspension, f.saved, f.events} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// openPage maps the guest's control page. It takes the page's file over.
func (f *setupFiles) openPage() (*ipc.ControlPage, error) {
	file := f.page
	f.page = nil
	page, err := ipc.OpenControlPage(file)
	if err != nil {
		return nil, err
	}
	page.SetSuspensionFile(f.suspension)
	return page, nil
}

// checkSetup checks what a setup says.
func checkSetup(s *ipc.Setup) error {
	if s.Slot < 0 || s.Slot >= ipc.MaxContexts {
		return fmt.Errorf("context slot %d of %d", s.Slot, ipc.MaxContexts)
	}
	return checkRings(s)
}

// checkRings checks where a setup has the device's part of BAR2.
func checkRings(s *ipc.Setup) error {
	if s.Header < 0 || s.Rings < 0 {
		return fmt.Errorf("header of %d bytes, rings of %d", s.Header, s.Rings)
	}
	return nil
}

// mapShared maps BAR2 whole.
func mapShared(f *os.File) (mem []byte, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at BAR2: %w", err)
	}
	if err := memfd.Check(f, st.Size()); err != nil {
		return nil, fmt.Errorf("BAR2: %w", err)
	}
	mem, err = unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map BAR2's %d bytes: %w", st.Size(), err)
	}
	return mem, nil
}

// mapEvents maps the event area, if there is one.
func mapEvents(f *os.File) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
		return nil, fmt.Errorf("BAR4: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map BAR4's %d bytes: %w", abi.EventAreaBytes, err)
	}
	return mem, nil
}

func unmapEvents(mem []byte) error {
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// windowsOf returns the part of BAR2 that is registered with the GPU. If the GPU registers memory, its
// pages are made meanwhile; populated waits for them, and stop ends that.
func windowsOf(s *ipc.Setup, shared []byte, log *slog.Logger) (windows []byte, populated, stop func()) {
	windows = registrable(s, shared, log)
	if s.GPU.Kind != "nvidia" {
		return windows, func() {}, func() {}
	}
	populated, stop = populate(windows, log)
	return windows, populated, stop
}

// contextOptions returns what the context of a setup is made with.
func contextOptions(s *ipc.Setup, page *ipc.ControlPage, memory gpu.Budget, elapsed func() time.Duration) gpu.ContextOptions {
	limit := currentMemoryLimit(page, s.MemoryLimit)
	switch {
	case s.Grant > 0 && !s.Grows:
		limit = s.Grant
	case s.Saved && limit > 0: // it may have been lowered since
		limit = max(limit, s.Grant)
	}
	return gpu.ContextOptions{
		Label: s.Guest, MemoryLimit: limit, Budget: memory, KernelTimeLimit: currentTimeLimit(page, s.KernelTimeLimit), Elapsed: elapsed,
	}
}

// currentMemoryLimit returns the GPU memory that the guest may use: what the daemon has set since, or
// what the context was set up with. 0 is no limit.
func currentMemoryLimit(page *ipc.ControlPage, setup uint64) uint64 {
	if n, ok := page.MemoryLimit(); ok {
		return n
	}
	return setup
}

// fetchLimitOf returns the fetch limit on a GPU.
func fetchLimitOf(g ipc.GPU, d gpu.Device) FetchLimit {
	if g.Kind == "nvidia" && d.Properties().Preempts {
		return DeepFetchLimit
	}
	return ShallowFetchLimit
}

// elapsedOf returns elapsed, or nil if the GPU's own timestamps tell how long a kernel ran.
func elapsedOf(g ipc.GPU, elapsed func() time.Duration) func() time.Duration {
	if g.Kind == "nvidia" {
		return elapsed
	}
	return nil
}
