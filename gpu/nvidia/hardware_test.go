package nvidia

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/corpus"
	"vgpud/gpu/gputest"
	"vgpud/gpu/nvidia/cuda"
)

// The tests in this file need a GPU and the driver. A context that faults ends its process, so
// tests with faults run in processes of their own.

// TestMain separates the tests' own output from that of kernels.
func TestMain(m *testing.M) {
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keep standard output:", err)
		os.Exit(1)
	}
	first := os.Stdout
	os.Stdout = os.NewFile(uintptr(fd), "stdout")
	code := m.Run()
	runtime.KeepAlive(first) // a collected file closes its descriptor
	os.Exit(code)
}

var library = sync.OnceValues(func() (*cuda.Library, error) {
	if err := setEnvironment(0); err != nil {
		return nil, err
	}
	return cuda.Open()
})

// hardware opens the GPU, or skips the test if there is none.
func hardware(t testing.TB) *Device {
	t.Helper()
	l, err := library()
	if err != nil {
		t.Skip(err)
	}
	d, err := Open(Options{Driver: l, Device: "0", CaptureOutput: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func hardwareContext(t testing.TB, o gpu.ContextOptions) (*Device, *Context) {
	t.Helper()
	d := hardware(t)
	before := time.Now()
	c, err := d.NewContext(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("context in %v", time.Since(before))
	return d, c.(*Context)
}

func channelOf(t testing.TB, c gpu.Context) *Channel {
	t.Helper()
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
	})
	return ch.(*Channel)
}

// ran waits for a queued command and returns its outcome.
func ran(t testing.TB, ch gpu.Channel, f gpu.Fence, err error) gpu.Outcome {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := ch.Wait(ctx, f); err != nil {
		t.Fatal(err)
	}
	return ch.Outcome(f)
}

func TestHardwareList(t *testing.T) {
	d := hardware(t)
	t.Logf("%+v", d.Info())
	if p := d.Properties(); p.SMs == 0 || p.Major == 0 || p.MemoryBytes == 0 || p.MaxGrid.X == 0 || p.BlocksPerSM == 0 {
		t.Errorf("properties: %+v", p)
	}
	if _, err := Find([]Info{d.Info()}, d.Info().PCI); err != nil {
		t.Error(err)
	}
}

// Every kernel of the corpus has its reference's results.
func TestHardwareCorpus(t *testing.T) {
	_, c := hardwareContext(t, gpu.ContextOptions{})
	for _, k := range corpus.All() {
		for _, size := range corpus.Sizes() {
			t.Run(k.Name+"/"+size.String(), func(t *testing.T) { gputest.RunCase(t, c, k, k.Case(size, 1)) })
		}
	}
}

const emptyPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry spin(.param .u64 ns) {
	.reg .b64 %rd<5>;
	.reg .pred %p;
	ld.param.u64 %rd1, [ns];
	mov.u64 %rd2, %globaltimer;
loop:
	mov.u64 %rd3, %globaltimer;
	sub.u64 %rd4, %rd3, %rd2;
	setp.lt.u64 %p, %rd4, %rd1;
	@%p bra loop;
	ret;
}
.visible .entry clock(.param .u64 at) {
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [at];
	mov.u64 %rd2, %globaltimer;
	st.global.u64 [%rd1], %rd2;
	ret;
}
.visible .entry bad() {
	.reg .b64 %rd<2>;
	mov.u64 %rd1, 64;
	st.global.u64 [%rd1], %rd1;
	ret;
}
.visible .entry trap() { trap; }
`

// load loads the kernels above.
func load(t testing.TB, c gpu.Context) func(name string, params ...uint64) *gpu.Launch {
	t.Helper()
	m, err := c.LoadModule([]byte(emptyPTX))
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, params ...uint64) *gpu.Launch {
		f, err := m.Function(name)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, p := range params {
			b = binary.LittleEndian.AppendUint64(b, p)
		}
		one := gpu.Dim3{X: 1, Y: 1, Z: 1}
		return &gpu.Launch{Function: f, Grid: one, Block: one, Params: b}
	}
}

// A command's times are on the clock that kernels read.
func TestHardwareClock(t *testing.T) {
	d, c := hardwareContext(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	kernel := load(t, c)
	p, err := c.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	var worstBefore, worstAfter, worstNow time.Duration
	deadline := time.Now().Add(6 * time.Second)
	for n := 0; time.Now().Before(deadline); n++ {
		f, err := ch.Launch(kernel("clock", uint64(p)))
		o := ran(t, ch, f, err)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		var b [8]byte
		f, err = ch.CopyOut(b[:], p)
		ran(t, ch, f, err)
		at := time.Duration(binary.LittleEndian.Uint64(b[:]))
		if n > 0 {
			worstBefore, worstAfter = max(worstBefore, o.Start-at), max(worstAfter, at-o.End)
		}
		now, err := d.Now()
		if err != nil {
			t.Fatal(err)
		}
		worstNow = max(worstNow, now-at)
		if now < at-time.Millisecond {
			t.Fatalf("the clock says %v after a kernel read %v", now, at)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("start behind the kernel's reading by %v, end before it by %v; now - reading up to %v; rate %g", worstBefore, worstAfter, worstNow, c.clock.rate)
	if worstBefore > 5*time.Microsecond || worstAfter > 5*time.Microsecond {
		t.Error("times are off by more than 5µs")
	}
	f, err := ch.Launch(kernel("spin", 2_000_000))
	if o := ran(t, ch, f, err); o.End-o.Start < 2*time.Millisecond || o.End-o.Start > 3*time.Millisecond {
		t.Errorf("a kernel of 2ms took %v", o.End-o.Start)
	}
}
