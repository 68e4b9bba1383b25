package system

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// ledger adds up what guests used by the GPU's own count, and by accounting, also of guests that are
// gone.
type ledger struct {
	t               *testing.T
	h               *host.Host
	gone, goneCount float64
	// late is the largest part of watched time that lay in gaps, since the host was overloaded.
	late float64
}

// leaves adds what a guest used that is about to end, and has nothing to do any more.
func (l *ledger) leaves(name string) {
	v := l.h.VM(name)
	l.gone += v.GPUSeconds
	l.goneCount += *v.GPUSecondsOwn
}

// sums returns the GPU-seconds of all guests by accounting and by the GPU's own count.
func (l *ledger) sums() (accounted, counted float64, err error) {
	vms, err := l.h.Client.VMs(context.Background())
	accounted, counted = l.gone, l.goneCount
	for _, v := range vms {
		if v.Lost != "" {
			continue // it has left
		}
		if v.GPUSecondsOwn == nil {
			return 0, 0, fmt.Errorf("the GPU keeps no count of %s", v.Name)
		}
		accounted += v.GPUSeconds
		counted += *v.GPUSecondsOwn
	}
	return accounted, counted, err
}

func (l *ledger) recorded() (float64, error) {
	u, err := l.h.Client.Usage(context.Background(), api.UsageQuery{From: "1d"})
	return u.Total.GPUSeconds, err
}

// complete waits until the record has all that was accounted, to the microsecond, while the GPU is
// idle.
func (l *ledger) complete(what string) {
	l.h.Until(what, func() error {
		accounted, _, err := l.sums()
		if err != nil {
			return err
		}
		if got, err := l.recorded(); err != nil || math.Abs(got-accounted) > 1e-4 {
			return fmt.Errorf("recorded %.6f s, accounted %.6f s: %v", got, accounted, err)
		}
		return nil
	})
}

// agrees waits for another second of GPU time, and until what is accounted is what the GPU counted,
// within one percent, while guests work. The record itself may be a second old, which is a second of
// GPU time; complete compares that when the GPU is idle. The shorter the time, the larger are the
// errors of a GPU that is watched a sixth of the time. An overloaded host does not watch all of that,
// and computes the GPU's kernels late; this is allowed for.
func (l *ledger) agrees(what string) {
	var text string
	least := 0.0
	l.h.Until(what, func() error {
		accounted, counted, err := l.sums()
		if err != nil {
			return err
		}
		if least == 0 {
			least = counted + 1
		}
		gpus, err := l.h.Client.GPUs(context.Background())
		if err != nil {
			return err
		}
		g := &gpus[0]
		l.late = max(l.late, g.GapSeconds/max(g.WatchedSeconds, 1e-3))
		off := math.Abs(accounted-counted) / counted
		text = fmt.Sprintf("%s: accounted %.3f s, the GPU counted %.3f s: off by %.2f %%, with %.2f %% in gaps and %.3f s late", what, accounted, counted, 100*off, 100*l.late, g.OverrunSeconds)
		if counted < least || off > 0.01+l.late+g.OverrunSeconds/counted {
			return errors.New(text)
		}
		return nil
	})
	l.t.Log(text)
}

// idles waits until all that guests did, who have nothing to do any more, is accounted: until
// nothing changes for some rounds, however long these take.
func (l *ledger) idles() {
	var before [2]float64
	var since uint64
	l.h.Until("an idle GPU", func() error {
		accounted, counted, err := l.sums()
		if err != nil {
			return err
		}
		gpus, err := l.h.Client.GPUs(context.Background())
		if err != nil {
			return err
		}
		if now := [2]float64{accounted, counted}; now != before {
			before, since = now, gpus[0].Rounds
		}
		if gpus[0].Rounds < since+5 {
			return errors.New("it has work")
		}
		return nil
	})
}

// TestUsageAddsUp checks that the record agrees with the GPU's own count, whatever guests and the
// daemon do: changes of weight, suspensions by a cap, ends of guests, and restarts of the daemon.
func TestUsageAddsUp(t *testing.T) {
	ctx := t.Context()
	h := host.Start(t, "dfq")
	l := &ledger{t: t, h: h}
	const iterations = 150
	stopLong := busy(t, h, api.VMSpec{Name: "long", Owner: "alice"}, 10*iterations)
	stopShort := busy(t, h, api.VMSpec{Name: "short", Weight: 4, Owner: "bob"}, iterations)
	l.agrees("accounting to agree")

	weight, limit := 2.0, 0.25
	if _, err := h.Client.UpdateVM(ctx, "short", api.VMUpdate{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Client.UpdateVM(ctx, "long", api.VMUpdate{Cap: &limit}); err != nil {
		t.Fatal(err)
	}
	l.agrees("accounting to agree after changes of terms")
	stopLong()
	stopShort()
	l.idles()
	l.complete("all to be recorded")

	// One guest is deleted, the daemon killed, and the other guest's process killed after that.
	l.leaves("short")
	if err := h.Client.ForceDeleteVM(ctx, "short"); err != nil {
		t.Fatal(err)
	}
	l.complete("all of a guest that is gone to be recorded")
	if err := h.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	h.StartDaemon()
	l.complete("all to be recorded after a restart of the daemon")
	l.leaves("long")
	if err := unix.Kill(h.VM("long").PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.Until("the guest to be lost", func() error {
		if h.VM("long").Lost == "" {
			return errors.New("it is not")
		}
		return nil
	})
	if err := h.Client.DeleteVM(ctx, "long"); err != nil {
		t.Fatal(err)
	}
	l.complete("all of a guest that was killed to be recorded")
	stop := busy(t, h, api.VMSpec{Name: "long", Owner: "carol"}, iterations)
	l.agrees("accounting to agree with a new guest of an old name")
	stop()
	l.idles()
	l.complete("all of the new guest to be recorded")

	u, err := h.Client.Usage(ctx, api.UsageQuery{From: "1d", By: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	var owners []string
	for _, r := range u.Rows {
		if owners = append(owners, r.Owner); r.GPUSeconds <= 0 || r.Kernels == 0 {
			t.Errorf("%+v", r)
		}
	}
	if fmt.Sprint(owners) != "[alice bob carol]" {
		t.Errorf("owners %v", owners)
	}
	if u.Total.SuspendedSeconds == 0 || u.Total.MemoryByteSeconds == 0 {
		t.Errorf("neither suspended nor any memory: %+v", u.Total)
	}
}
