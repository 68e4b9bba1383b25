package system

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/e2e/mischief"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

var everyPolicy = flag.Bool("every-policy", false, "run the tests of endless kernels and events under each policy that bounds them, and in each mode")

// contextsOfOffender is the number of the guest's contexts, each with an endless kernel.
const contextsOfOffender = 16

// TestHostileContexts checks that a guest with an endless kernel in each of 16 contexts, each
// launched again when its time limit ends it, leaves another guest that is entitled to a third of
// the GPU its share, and keeps it off the GPU for about one limit at a time. Time is GPU time
// during which the GPU had work, by the GPU's own accounting, so a busy host makes no difference.
// Tests in simulated time (mediator) check the exact bounds.
func TestHostileContexts(t *testing.T) {
	for _, mode := range []string{"exclusive", "slices", "co-run"} {
		t.Run(mode, func(t *testing.T) { bound(t, "dfq", mode, endlessLaunch) })
	}
	if *everyPolicy {
		t.Run("ffs", func(t *testing.T) { bound(t, "ffs", "exclusive", endlessLaunch) })
	}
}

// TestHostileEvents is TestHostileContexts with an event kernel that never ends in each context.
func TestHostileEvents(t *testing.T) {
	t.Run("exclusive", func(t *testing.T) { bound(t, "dfq", "exclusive", mischief.RunEndlessEvent) })
	if *everyPolicy {
		for _, mode := range []string{"slices", "co-run"} {
			t.Run(mode, func(t *testing.T) { bound(t, "dfq", mode, mischief.RunEndlessEvent) })
		}
		t.Run("ffs", func(t *testing.T) { bound(t, "ffs", "exclusive", mischief.RunEndlessEvent) })
	}
}

// bound is a test of a policy on a GPU in a mode. run launches something endless, and returns when it
// was ended.
func bound(t *testing.T, policy, mode string, run func(context.Context, *driver.Context) error) {
	h := host.Start(t, policy, "--mode", mode)
	h.Timeout = 5 * time.Minute // six seconds of a busy GPU
	busy(t, h, api.VMSpec{Name: "neighbour", Weight: 1}, 1000)
	offend(t, h.NewGuest(api.VMSpec{Name: "offender", Weight: 2, KernelTimeLimit: boundLimit}), run)
	var w watch
	h.Until("the neighbour to have its part", func() error { return w.look(h) })
	if v := h.VM("neighbour"); v.Errors > 0 {
		t.Errorf("%d errors of the neighbour's", v.Errors)
	}
}

func endlessLaunch(ctx context.Context, gpu *driver.Context) error {
	p, err := mischief.LaunchEndless(ctx, gpu)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// boundLimit is the offender's kernel time limit. Compared with it, the daemon needs little time to
// see which guest runs and to suspend it.
const boundLimit = 250 * time.Millisecond

// offend makes a guest launch endless kernels in all its contexts until the test ends. A context
// whose kernel was ended is reset.
func offend(t *testing.T, dev *driver.Device, run func(context.Context, *driver.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	for range contextsOfOffender {
		gpu := contextOf(t, dev)
		wg.Go(func() {
			for ctx.Err() == nil {
				err := run(ctx, gpu)
				if err == nil || ctx.Err() != nil {
					continue
				}
				if err := gpu.Reset(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("begin a context anew: %v", err)
					return
				}
			}
		})
	}
}

// watch follows the two guests' GPU time.
type watch struct {
	seen []usage // over the time that is examined
}

type usage struct{ neighbour, offender time.Duration }

func (u usage) sum() time.Duration { return u.neighbour + u.offender }

// watched is the GPU time that is examined. Where 16 kernels run one after the other and their
// guest then pays for all of them, any such time has more than six of them in a row.
const watched = 24 * boundLimit

// look records what the guests have used by now. The error says what is wrong with the latest
// interval, or that none is long enough.
func (w *watch) look(h *host.Host) error {
	now := usage{own(h, "neighbour"), own(h, "offender")}
	w.seen = append(w.seen, now)
	for len(w.seen) > 1 && now.sum()-w.seen[1].sum() >= watched {
		w.seen = w.seen[1:]
	}
	first := w.seen[0]
	all, mine := now.sum()-first.sum(), now.neighbour-first.neighbour
	var longest time.Duration // that the offender used while the neighbor used nothing
	since := first
	for _, u := range w.seen {
		if u.neighbour != since.neighbour {
			since = u
		}
		longest = max(longest, u.offender-since.offender)
	}
	if all < watched || mine < all/4 || all-mine < boundLimit || longest > 2*boundLimit {
		return fmt.Errorf("of %v the neighbour used %v, and waited while the offender used %v", all, mine, longest)
	}
	return nil
}

// own returns a guest's GPU time by the GPU's own accounting.
func own(h *host.Host, name string) time.Duration {
	if s := h.VM(name).GPUSecondsOwn; s != nil {
		return time.Duration(*s * float64(time.Second))
	}
	return 0
}
