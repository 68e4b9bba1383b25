package executor

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/internal/memfd"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// countedGPU counts its contexts, and what each was made with.
type countedGPU struct {
	*soft.Device
	made chan gpu.ContextOptions
	ends chan struct{}
}

func (d *countedGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	if err != nil {
		return nil, err
	}
	d.made <- o
	return &countedContext{c, d.ends}, nil
}

type countedContext struct {
	gpu.Context
	ends chan struct{}
}

func (c *countedContext) Close() error {
	c.ends <- struct{}{}
	return c.Context.Close()
}

// aheadShared returns a guest's shared memory.
func aheadShared(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("bar2", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "bar2")
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(sharedBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// send sends a message, or fails the test.
func send(t *testing.T, vm *ipc.Conn, kind ipc.Kind, body any, files ...*os.File) {
	t.Helper()
	m, err := ipc.NewMessage(kind, body, files...)
	if err == nil {
		err = vm.Send(m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestContextAhead: a context that was made ahead is the one of the setup, and its guest pays for it
// from then on. One that is not what the setup asks for is closed, and another is made.
func TestContextAhead(t *testing.T) {
	prepared := ipc.GPU{Name: "gpu0", Kind: "soft"}
	like := ipc.Setup{Guest: "g", GPU: prepared, Header: abi.HeaderBytes(testChannels), Rings: testRings, MemoryLimit: 32 << 20, Grows: true}
	for name, c := range map[string]struct {
		change func(s *ipc.Setup)
		page   func(p *ipc.ControlPage)
		gone   bool // the GPU, before the setup
		other  bool // shared memory
		used   bool
		code   abi.ErrorCode
	}{
		"the same":            {used: true},
		"another slot, grant": {change: func(s *ipc.Setup) { s.Slot, s.Grant, s.LastFault = 3, 8<<20, "x" }, used: true},
		"another guest":       {change: func(s *ipc.Setup) { s.Guest = "h" }},
		"another GPU":         {change: func(s *ipc.Setup) { s.GPU.Name = "gpu1" }},
		"another limit":       {change: func(s *ipc.Setup) { s.MemoryLimit = 16 << 20 }},
		"limit since":         {page: func(p *ipc.ControlPage) { p.SetTerms(ipc.Terms{MemoryLimitBytes: 16 << 20}) }},
		"a limit of time":     {change: func(s *ipc.Setup) { s.KernelTimeLimit = 1e9 }},
		"no growth":           {change: func(s *ipc.Setup) { s.Grant, s.Grows = 8<<20, false }},
		"other rings":         {change: func(s *ipc.Setup) { s.Rings = 0 }},
		"other memory":        {other: true},
		"gone":                {gone: true},
		"a grant too low":     {change: func(s *ipc.Setup) { s.Grant = soft.ContextBytes - 1 }, code: abi.ErrorLimit},
	} {
		t.Run(name, func(t *testing.T) {
			made, ends, opened := make(chan gpu.ContextOptions, 4), make(chan struct{}, 4), make(chan gpu.Device, 4)
			open := func(context.Context, ipc.GPU) (gpu.Device, error) {
				d, err := soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
				opened <- d
				return &countedGPU{d, made, ends}, err
			}
			vm, end, err := ipc.Pair()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := ipc.FromFile(end)
			if err != nil {
				t.Fatal(err)
			}
			page, err := ipc.NewControlPage()
			if err != nil {
				t.Fatal(err)
			}
			shared := aheadShared(t)
			usual, err := niceOf(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			p := process{clock.Real{}, watchdog{&clock.Sim{}, func(code int) { t.Errorf("the process ends itself with %d", code) }}}
			ended := make(chan error, 1)
			go func() { ended <- p.serve(t.Context(), theirs, open, slog.New(slog.DiscardHandler)) }()
			defer func() {
				if err := vm.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if n, m := len(made), len(ends); n != m {
					t.Errorf("%d contexts are closed, want %d", m, n)
				}
				if err := schedule(usual, 0); err != nil { // the process is the test's
					t.Error(err)
				}
				if err := page.Close(); err != nil {
					t.Error(err)
				}
			}()
			send(t, vm, ipc.KindPrepare, ipc.Prepare{GPU: prepared})
			send(t, vm, ipc.KindAhead, like, shared, page.File())
			if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindAhead || m.Error != "" {
				t.Fatalf("%+v, %v", m, err)
			}
			if n := page.MemoryTaken(); n != 0 {
				t.Errorf("the guest has %d bytes before it has a context", n)
			}
			s := like
			if c.change != nil {
				c.change(&s)
			}
			if c.page != nil {
				c.page(page)
			}
			if c.gone {
				if err := (<-opened).Close(); err != nil {
					t.Fatal(err)
				}
			}
			bar2 := shared
			if c.other {
				bar2 = aheadShared(t)
			}
			send(t, vm, ipc.KindSetup, s, bar2, page.File())
			m, err := vm.Receive()
			if err != nil || m.Kind != ipc.KindReady {
				t.Fatalf("%+v, %v", m, err)
			}
			if c.code != 0 {
				var f ipc.Fault
				if err := m.Decode(&f); err != nil || abi.ErrorCode(f.Code) != c.code {
					t.Errorf("%+v, %v", f, err)
				}
				return
			}
			if m.Error != "" {
				t.Fatal(m.Error)
			}
			if used := len(made) == 1; used != c.used {
				t.Errorf("%d contexts are made: the one ahead is used: %v, want %v", len(made), used, c.used)
			}
			if want := map[bool]int{true: 0, false: 1}[c.used]; len(ends) != want {
				t.Errorf("%d contexts are closed, want %d", len(ends), want)
			}
			if n := page.Context(s.Slot).MemoryTaken(); n != soft.ContextBytes {
				t.Errorf("the guest has %d bytes, want %d", n, soft.ContextBytes)
			}
		})
	}
}

// TestNoContextAhead: an executor that can't make a context ahead says so, and has the GPU open all the
// same. One that is asked twice, or without the guest's files, ends.
func TestNoContextAhead(t *testing.T) {
	prepared := ipc.GPU{Name: "gpu0", Kind: "soft"}
	like := ipc.Setup{Guest: "g", GPU: prepared, Header: abi.HeaderBytes(testChannels), MemoryLimit: soft.ContextBytes - 1}
	opens := 0
	open := func(context.Context, ipc.GPU) (gpu.Device, error) {
		opens++
		return soft.NewLocal(soft.Options{MemoryBytes: 64 << 20, Priority: -1})
	}
	p := process{clock.Real{}, watchdog{&clock.Sim{}, func(code int) { t.Errorf("the process ends itself with %d", code) }}}
	before := func(vm *ipc.Conn) {
		page, err := ipc.NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		send(t, vm, ipc.KindPrepare, ipc.Prepare{GPU: prepared})
		send(t, vm, ipc.KindAhead, like, aheadShared(t), page.File())
		if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindAhead || m.Error == "" {
			t.Fatalf("%+v, %v", m, err)
		}
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	}
	vm, _, _ := serveAfter(t, p, before, ipc.Setup{Guest: "g", GPU: prepared, Header: abi.HeaderBytes(testChannels)}, open)
	if m, err := vm.Receive(); err != nil || m.Kind != ipc.KindReady || m.Error != "" || opens != 1 {
		t.Errorf("%+v, %v, opened %d times", m, err, opens)
	}

	good := like
	good.MemoryLimit = 0
	for name, ask := range map[string]func(vm *ipc.Conn, page *ipc.ControlPage){
		"twice": func(vm *ipc.Conn, page *ipc.ControlPage) {
			for range 2 {
				send(t, vm, ipc.KindAhead, good, aheadShared(t), page.File())
			}
		},
		"no files": func(vm *ipc.Conn, _ *ipc.ControlPage) { send(t, vm, ipc.KindAhead, good) },
		"bad rings": func(vm *ipc.Conn, page *ipc.ControlPage) {
			s := good
			s.Rings = -1
			send(t, vm, ipc.KindAhead, s, aheadShared(t), page.File())
		},
	} {
		vm, end, err := ipc.Pair()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := ipc.FromFile(end)
		if err != nil {
			t.Fatal(err)
		}
		page, err := ipc.NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.serve(t.Context(), theirs, open, slog.New(slog.DiscardHandler)) }()
		send(t, vm, ipc.KindPrepare, ipc.Prepare{GPU: prepared})
		ask(vm, page)
		if err := <-ended; err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	}
}
