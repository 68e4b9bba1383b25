package system

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"vgpud/e2e/host"
	"vgpud/guestagent/driver"
	"vgpud/mediator/api"
)

// contextsOfOffender is how many contexts the guest has whose kernels never end.
const contextsOfOffender = 16

// TestEndlessContexts: a guest with an endless kernel in each of 16 contexts, launched
// anew as often as one is ended by its time limit, keeps another that is entitled to a
// third of the GPU neither from a quarter of it in any time of two limits' length, nor
// from the GPU for longer than one limit. Time is the GPU's, as far as it had work: the
// GPU's own account, so that a host that is busy makes no difference.
func TestEndlessContexts(t *testing.T) {
	for _, mode := range []string{"exclusive", "slices", "co-run"} {
		t.Run(mode, func(t *testing.T) {
			h := host.Start(t, "dfq", "--mode", mode)
			busy(t, h, api.VMSpec{Name: "neighbour", Weight: 1}, 1000)
			offend(t, h.NewGuest(api.VMSpec{Name: "offender", Weight: 2, KernelTimeLimit: boundLimit}), launchEndless)
			// What is begun is let settle: until the first kernel was ended.
			h.Until("the first endless kernel's end", func() error {
				if v := h.VM("offender"); v.Errors == 0 {
					return fmt.Errorf("%+v", v)
				}
				return nil
			})
			var w watch
			begun := time.Now()
			h.Until("a while in which the neighbour has its part", func() error {
				err := w.look(h)
				if len(w.seen) == 0 {
					t.Log(time.Since(begun), err)
				}
				return err
			})
			if v := h.VM("neighbour"); v.Errors > 0 {
				t.Errorf("%d errors of the neighbour's", v.Errors)
			}
		})
	}
}

// boundLimit is the offender's kernel time limit. Against it what the daemon takes to see
// who runs, and to hold that one, is little.
const boundLimit = 400 * time.Millisecond

// offend has a guest launch endless kernels in all its contexts until the test ends. A
// context of which one was ended is begun anew.
func offend(t *testing.T, dev *driver.Device, launch func(context.Context, *driver.Context) (*driver.Pending, error)) {
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
				p, err := launch(ctx, gpu)
				if err == nil {
					err = p.Wait(ctx)
				}
				if err == nil {
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

// A watch follows the two guests' GPU time.
type watch struct {
	seen []usage
}

type usage struct{ neighbour, offender time.Duration }

func (u usage) sum() time.Duration { return u.neighbour + u.offender }

// What has to be seen, in the offender's time limits, without one stretch in which the
// neighbour gets too little; and how much later than it is due what a time limit or a
// verdict ends may be seen to end.
const (
	watchLimits  = 12
	watchedTwice = 2
	watchSlack   = boundLimit / 8
)

// look takes in what the guests have used by now. The error says what is missing yet, or
// what was wrong; then it begins anew.
func (w *watch) look(h *host.Host) error {
	now := usage{own(h, "neighbour"), own(h, "offender")}
	w.seen = append(w.seen, now)
	for i, from := range w.seen {
		used, mine := now.sum()-from.sum(), now.neighbour-from.neighbour
		if alone := now.offender - from.offender; mine == 0 && alone > boundLimit+watchSlack {
			w.seen = w.seen[:0]
			return fmt.Errorf("the neighbour waited while the offender used %v", alone)
		}
		if used < watchedTwice*boundLimit {
			break
		}
		if i+1 < len(w.seen) && now.sum()-w.seen[i+1].sum() >= watchedTwice*boundLimit {
			continue // it is in a shorter one
		}
		if least := used/4 - watchSlack; mine < least {
			w.seen = w.seen[:0]
			return fmt.Errorf("of %v the neighbour used %v", used, mine)
		}
		break
	}
	first := w.seen[0]
	if used, others := now.sum()-first.sum(), now.offender-first.offender; used < watchLimits*boundLimit || others < boundLimit {
		return fmt.Errorf("seen %v of GPU time, %v of the offender's", used, others)
	}
	return nil
}

// own is the GPU's own account of a guest.
func own(h *host.Host, name string) time.Duration {
	if s := h.VM(name).GPUSecondsOwn; s != nil {
		return time.Duration(*s * float64(time.Second))
	}
	return 0
}
