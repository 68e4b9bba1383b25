package scheduler

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
)

// TestHeldBack: a guest's status says why it is suspended, or its launches leave for another's, for
// some seconds after that; and a suspension that lasts is an event, as is its end.
func TestHeldBack(t *testing.T) {
	s := newScene(t)
	ring := events.NewRing(16, time.Time{})
	s.sched.o.Log = slog.New(events.NewHandler(slog.NewTextHandler(io.Discard, nil), ring))
	batch, other := s.join(1, 1, 1), s.join(2, 1, 2)
	why := func(g *Guest) string {
		h := g.Status(s.clock.Now()).HeldBack
		return strings.TrimSpace(h.Reason + " " + h.For)
	}
	expect := func(when, want string) {
		t.Helper()
		if got := why(batch); got != want || why(other) != "" {
			t.Errorf("%s: %q and %q, want %q and none", when, got, why(other), want)
		}
	}
	kinds := func() (all []string) {
		list, _, _ := ring.Since("")
		for _, e := range list {
			all = append(all, strings.TrimSpace(e.Kind+" "+e.VM+" "+e.Details["reason"]))
		}
		return all
	}
	expect("at first", "")
	for _, c := range []struct {
		reason fairshare.SuspendReason
		cause  fairshare.GuestID
		want   string
	}{
		{fairshare.AheadOfShare, 0, "share"}, {fairshare.AtCap, 0, "cap"}, {fairshare.BehindGuarantee, 2, "guarantee b"},
		{fairshare.BudgetSpent, 0, "budget"}, {fairshare.Sampled, 0, "sampling"},
	} {
		s.next(fairshare.Verdict{Guest: 1, Action: fairshare.Suspend, Reason: c.reason, For: c.cause})
		s.poll(ms)
		expect(c.want, c.want)
		s.poll(ms)
		expect(c.want+" in the next round", c.want)
		s.next(resume(1))
		s.poll(ms)
		expect(c.want+", just ended", c.want)
		s.poll(rememberReason + ms)
		expect(c.want+", long ended", "")
	}
	if got := kinds(); len(got) != 0 {
		t.Errorf("short suspensions are events: %q", got)
	}

	s.next(fairshare.Verdict{Guest: 1, Action: fairshare.Suspend, Reason: fairshare.AtCap})
	s.poll(ms)
	for range 3 {
		s.poll(longSuspension)
		expect("a long one", "cap")
	}
	s.next(resume(1))
	s.poll(ms)
	s.poll(ms)
	if diff := cmp.Diff([]string{"guest-suspended a cap", "guest-resumed a"}, kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	s.poll(rememberReason + ms)
	s.byKernel()
	long := s.submit(batch, ipc.Launch{Evictable: true, Form: 1, Kernel: 7})
	s.next(run(1))
	s.sched.LaunchesChanged()
	long.Start(s.clock.Now())
	s.next(evict(1, 1, 1))
	s.sched.Changed(0)
	expect("its slice is over", "")
	s.next(evict(1, 1, 2))
	s.submit(other, ipc.Launch{Priority: 9})
	s.sched.LaunchesChanged()
	expect("told to leave for another", "urgent b")
}
