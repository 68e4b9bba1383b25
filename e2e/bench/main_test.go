package bench

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/host"
	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// spinVariable turns this test's binary into a process that only keeps a processor busy.
const spinVariable = "VGPUD_BENCH_SPIN"

func TestMain(m *testing.M) {
	if os.Getenv(spinVariable) != "" {
		for spun := 0; ; spun++ {
			runtime.KeepAlive(spun)
		}
	}
	code := m.Run()
	if err := host.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// besideBusy runs busy processes until the benchmark ends.
func besideBusy(b *testing.B, n int) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), spinVariable+"=1")
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := cmd.Process.Kill(); err != nil {
				b.Error(err)
			}
			_ = cmd.Wait() // it was killed
		})
	}
}

// newContext makes a guest with a context.
func newContext(b *testing.B, h *host.Host, name string) *driver.Context {
	b.Helper()
	gpu, err := h.NewGuest(api.VMSpec{Name: name}).NewContext(b.Context(), driver.ContextOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return gpu
}

// newThrottle puts a kernel into a context that takes about that much GPU time.
func newThrottle(b *testing.B, gpu *driver.Context, length time.Duration) *driver.Launch {
	b.Helper()
	k, ok := corpus.ByName("throttle")
	if !ok {
		b.Fatal("the corpus has no throttle")
	}
	// of makes it of some iterations, and measures it.
	of := func(iterations int) (*driver.Launch, time.Duration) {
		l, err := workload.NewLoad(b.Context(), gpu, k.PTX(corpus.SM80), corpus.Throttle(corpus.ThrottleConfig{
			Blocks: 1, Threads: 128, Iterations: iterations,
		}))
		if err != nil {
			b.Fatal(err)
		}
		shortest := time.Duration(math.MaxInt64) // others want the processors, too
		for range 5 {
			var p driver.Pending
			err = gpu.Own().Enqueue(b.Context(), &p, &l.Steps[0])
			if err == nil {
				err = p.Wait(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
			start, end := p.Times()
			shortest = min(shortest, end-start)
		}
		return &l.Steps[0], shortest
	}
	const few, many = 100, 1100
	_, short := of(few)
	_, long := of(many)
	launch, _ := of(few + int((length-short)*(many-few)/(long-short)))
	return launch
}

// quantile returns the value below which a part q of the sorted values lies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// reportLatency reports the middle and the end of the distribution in place of the mean.
func reportLatency(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(quantile(all, 0.5))/1e3, "p50-µs")
	b.ReportMetric(float64(quantile(all, 0.99))/1e3, "p99-µs")
	b.ReportMetric(0, "ns/op")
}
