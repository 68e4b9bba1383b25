package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// BenchmarkLaunch measures a call of cuLaunchKernel, amortized over 1,000 launches, by the clock and
// by the thread's processor time, which is what counts beside busy processes.
func BenchmarkLaunch(b *testing.B) {
	g := newGuest(b)
	for b.Loop() {
		var wall, cpu float64
		if _, err := fmt.Sscan(g.run(b, "launchtime.c", "100"), &wall, &cpu); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(wall, "ns/launch")
		b.ReportMetric(cpu, "cpu-ns/launch")
	}
}

// BenchmarkCompletion measures launches to their completion, synchronized each, by a C program over
// libcuda.so.1 and by the Go API, of the same kernels, each on a guest of its own of one host. They
// take short turns, so that whatever else the machine does is the same for both: what it reports is
// the median of the turns' ratios and those of the times, and the ratio of the best turns, which are
// those that nothing disturbed.
func BenchmarkCompletion(b *testing.B) {
	const launches, turns = 50, 201
	g := newGuest(b)
	ptx, err := os.ReadFile("testdata/completion.ptx")
	if err != nil {
		b.Fatal(err)
	}
	for _, kernel := range []string{"empty", "work"} {
		b.Run(kernel, func(b *testing.B) {
			c := g.launcher(b, launches)
			goAPI := launcher(b, g, ptx, kernel, launches)
			for b.Loop() {
				times := make([][3]float64, turns) // ratio, C, Go
				for i := range times {
					// Either may be the first: the machine's state changes.
					var t, u float64
					if i%2 == 0 {
						t, u = c(kernel), goAPI()
					} else {
						u, t = goAPI(), c(kernel)
					}
					times[i] = [3]float64{t / u, t, u}
				}
				for k, unit := range []string{"libcuda/Go", "ns-libcuda", "ns-Go"} {
					slices.SortFunc(times, func(x, y [3]float64) int { return cmp.Compare(x[k], y[k]) })
					b.ReportMetric(times[turns/2][k], unit)
				}
				best := func(k int) float64 {
					return slices.MinFunc(times, func(x, y [3]float64) int { return cmp.Compare(x[k], y[k]) })[k]
				}
				b.ReportMetric(best(1)/best(2), "best-libcuda/Go")
			}
		})
	}
}

// launcher starts the C program, and returns what measures the launches of a kernel with it.
func (g *guest) launcher(b *testing.B, launches int) func(kernel string) float64 {
	// Not with b's context, which ends before the cleanups.
	cmd := exec.Command(compile(b, "completion.c"), fmt.Sprint(launches), "testdata/completion.ptx")
	cmd.Env = g.env
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	return func(kernel string) (ns float64) {
		if _, err := fmt.Fprintln(in, kernel); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &ns); err != nil {
			b.Fatal(err)
		}
		return ns
	}
}

// launcher returns what measures the launches of a kernel by the Go API, as guest.launcher does.
func launcher(b *testing.B, g *guest, image []byte, kernel string, launches int) func() float64 {
	ctx := b.Context()
	vm := g.h.NewVM(api.VMSpec{Name: kernel + "-by-go"})
	x, err := g.h.Attach(vm.Socket).NewContext(ctx, driver.ContextOptions{Preempt: &driver.PreemptOptions{}})
	if err != nil {
		b.Fatal(err)
	}
	m, err := x.LoadModule(ctx, image)
	if err != nil {
		b.Fatal(err)
	}
	f, err := m.Function(ctx, kernel)
	if err != nil {
		b.Fatal(err)
	}
	ch, err := x.NewChannel(ctx, driver.ChannelOptions{})
	if err != nil {
		b.Fatal(err)
	}
	const n = 1 << 14
	p, err := x.Alloc(ctx, 4*n)
	if err != nil {
		b.Fatal(err)
	}
	var pending driver.Pending
	return func() float64 {
		begin := time.Now()
		for range launches {
			params, err := f.AppendParams(nil, p, uint32(1), uint32(n))
			if err != nil {
				b.Fatal(err)
			}
			l := driver.Launch{Function: f, Grid: driver.Dim{X: n / 256}, Block: driver.Dim{X: 256}, Params: params}
			if err := ch.Enqueue(ctx, &pending, &l); err != nil {
				b.Fatal(err)
			}
			if err := pending.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
		return float64(time.Since(begin)) / float64(launches)
	}
}
