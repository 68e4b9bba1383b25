package nvidia

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/nvidia/bar0"
	"vgpud/gpu/nvidia/rm"
)

// MonitorOptions select the GPU to watch.
type MonitorOptions struct {
	// Info is the GPU's entry in [List]: the monitor itself never loads CUDA.
	Info Info
	// AllowUnknownDriver accepts a driver whose calls are not known. The monitor then has no Events
	// and no Control, and uses the host's clock for the GPU's.
	AllowUnknownDriver bool
	// Kernel defaults to this machine's driver.
	Kernel rm.Kernel
	// Root is the root of the file system, by default "/".
	Root fs.FS
	// Clock is the host's clock, by default the real one.
	Clock clock.Clock
	Log   *slog.Logger
}

// Monitor watches one GPU and controls other processes' contexts on it through the kernel driver.
// It implements [gpu.Monitor], [gpu.Sampled], [gpu.Recording], [gpu.Controller] and [gpu.Losable].
type Monitor struct {
	o      MonitorOptions
	client *rm.Client // nil with an unknown driver
	why    error      // why client is nil

	mu        sync.Mutex
	registers []*bar0.Registers // mapped until Close

	lost   chan struct{}
	loss   sync.Once
	cancel context.CancelFunc
	watch  sync.WaitGroup
}

// watchPeriod is the interval at which the monitor checks that the GPU is still there.
const watchPeriod = time.Second

// OpenMonitor starts watching a GPU. The caller must close the monitor.
func OpenMonitor(o MonitorOptions) (*Monitor, error) {
	if o.Kernel == nil {
		o.Kernel = rm.Linux{}
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Monitor{o: o, lost: make(chan struct{})}
	err := knownDriver(o.Root)
	if err == nil {
		err = m.reach()
	} else if o.AllowUnknownDriver {
		m.why, err = err, nil
		o.Log.Warn("this driver's calls are not known: no context switches, suspension or time slices by the hardware", "gpu", o.Info.UUID, "err", m.why)
	}
	if err != nil {
		return nil, fmt.Errorf("watch GPU %s: %w", o.Info.UUID, err)
	}
	m.o.Info.Properties.Preempts = m.client != nil
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	if m.client != nil {
		m.watch.Go(func() { m.watchLoss(ctx) })
	}
	return m, nil
}

// reach opens the driver.
func (m *Monitor) reach() error {
	g, err := rm.Lookup(m.o.Root, m.o.Info.PCI)
	if err != nil {
		return err
	}
	m.client, err = rm.Open(m.o.Kernel, g)
	return err
}

// watchLoss reads the GPU's clock periodically, so that a loss is noticed even if nobody else uses
// the GPU.
func (m *Monitor) watchLoss(ctx context.Context) {
	for clock.Sleep(ctx, m.o.Clock, watchPeriod) == nil {
		if _, err := m.Now(); errors.Is(err, gpu.ErrLost) {
			m.o.Log.Error("GPU lost", "gpu", m.o.Info.UUID, "err", err)
			return
		}
	}
}

// markLost returns err, with [gpu.ErrLost] added if it means that the GPU is gone.
func (m *Monitor) markLost(err error) error {
	if err != nil && rm.Lost(err) {
		m.lose()
		return fmt.Errorf("%w: %w", err, gpu.ErrLost)
	}
	return err
}

func (m *Monitor) lose() { m.loss.Do(func() { close(m.lost) }) }

// Properties returns the GPU's properties.
func (m *Monitor) Properties() gpu.Properties { return m.o.Info.Properties }

// Now reads the GPU's clock: PTIMER, or CLOCK_REALTIME with an unknown driver. PTIMER follows
// CLOCK_REALTIME to about a millisecond.
func (m *Monitor) Now() (time.Duration, error) {
	if m.client == nil {
		return time.Duration(time.Now().UnixNano()), nil
	}
	t, err := m.client.Now()
	return t, m.markLost(err)
}

// Lost is closed when the driver reports that the GPU is gone, or by Close.
func (m *Monitor) Lost() <-chan struct{} { return m.lost }

// Events opens the GPU's record of the context switches of all processes. The result is an
// [accounting.Pausable].
func (m *Monitor) Events() (accounting.EventSource, error) {
	if m.client == nil {
		return nil, m.why
	}
	s := &eventSource{m: m, buf: make([]rm.Switch, 1024)}
	if err := s.Resume(); err != nil {
		return nil, err
	}
	return s, nil
}

// eventSource adapts rm's events to accounting.
type eventSource struct {
	m     *Monitor
	e     *rm.Events // nil while the record is paused
	buf   []rm.Switch
	clock readings
}

// clockMargin is the distance of the source's clock behind the GPU's, so that it is never ahead of
// a switch that Read has yet to return. It covers the drift of the clocks between readings and the
// error of a reading.
const clockMargin = 5 * time.Microsecond

// Read implements [accounting.EventSource].
func (s *eventSource) Read(out []accounting.Switch) (n int, err error) {
	if s.e == nil {
		return 0, nil
	}
	for n < len(out) {
		want := s.buf[:min(len(s.buf), len(out)-n)]
		k, err := s.e.Read(want)
		for _, e := range want[:k] {
			pid := e.PID
			if pid == 0 {
				pid = accounting.NoProcess // the kernel's own
			}
			out[n] = accounting.Switch{Clock: e.Clock, PID: pid, On: e.On}
			n++
		}
		var dropped *rm.DroppedError
		if errors.As(err, &dropped) {
			return n, fmt.Errorf("%w: %w", accounting.ErrDropped, err)
		}
		if err != nil || k < len(want) {
			return n, s.m.markLost(err)
		}
	}
	return n, nil
}

// Now implements [accounting.EventSource].
func (s *eventSource) Now() (time.Duration, error) {
	t, err := s.clock.at(s.m.o.Clock.Now(), s.m.o.Clock, s.m.Now)
	return t - clockMargin, err
}

// Pause implements [accounting.Pausable]. The GPU records as long as anybody has its record open,
// so the record is closed, which takes 0.5 ms and a harmless line in the kernel's log.
func (s *eventSource) Pause() error {
	if s.e == nil {
		return nil
	}
	e := s.e
	s.e = nil
	return s.m.markLost(e.Close())
}

// Resume implements [accounting.Pausable]. It takes about 1 ms.
func (s *eventSource) Resume() error {
	if s.e != nil {
		return nil
	}
	e, err := s.m.client.Events()
	if rm.Forbidden(err) {
		err = fmt.Errorf("%w: give the daemon CAP_SYS_ADMIN", err)
	}
	if err != nil {
		return s.m.markLost(err)
	}
	s.e = e
	return nil
}

// Close implements [accounting.EventSource].
func (s *eventSource) Close() error { return s.Pause() }

// Control takes control of another process's context by the handles from its Context.Handles.
func (m *Monitor) Control(h gpu.Handles) (gpu.Control, error) {
	c, err := m.control(h)
	if err != nil {
		return nil, m.markLost(fmt.Errorf("control a context of another process: %w", err))
	}
	return &control{m: m, c: c}, nil
}

func (m *Monitor) control(h gpu.Handles) (*rm.Control, error) {
	var objects rm.Objects
	err := m.why
	switch {
	case err != nil:
	case len(h.Files) != 1:
		err = fmt.Errorf("%d files: want one, of its driver", len(h.Files))
	default:
		err = json.Unmarshal(h.Names, &objects)
	}
	if err != nil {
		for _, f := range h.Files {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	n, err := m.o.Kernel.Adopt(h.Files[0])
	if err != nil {
		return nil, err
	}
	return rm.NewControl(n, objects, rm.ControlOptions{})
}

// control controls one context.
type control struct {
	m *Monitor
	c *rm.Control
}

func (c *control) Suspend() error                     { return c.m.markLost(c.c.Disable()) }
func (c *control) Resume() error                      { return c.m.markLost(c.c.Enable()) }
func (c *control) SetTimeslice(d time.Duration) error { return c.m.markLost(c.c.SetTimeslice(d)) }
func (c *control) Close() error                       { return c.c.Close() }

// Close stops the monitor. Register sources must not be used any more, and event sources must be
// closed before. Controls may stay open.
func (m *Monitor) Close() error {
	m.cancel()
	m.watch.Wait()
	m.lose()
	err := m.unmap()
	if m.client != nil {
		err = errors.Join(err, m.client.Close())
	}
	return err
}
