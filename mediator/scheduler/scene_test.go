package scheduler

import (
	"log/slog"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
)

const ms = time.Millisecond

// script is a policy that gives the answers it is told to, and remembers what it was asked.
type script struct {
	answers [][]fairshare.Verdict
	events  []fairshare.Event
	states  [][]fairshare.Guest
	// launches are those that it was shown, for each of the states.
	launches [][]fairshare.Launch
	left     [][]fairshare.Left // likewise
}

func (p *script) Decide(_ time.Duration, ev fairshare.Event, st fairshare.State) ([]fairshare.Verdict, time.Duration) {
	p.events = append(p.events, ev)
	p.states = append(p.states, append([]fairshare.Guest(nil), st.Guests...))
	p.launches = append(p.launches, append([]fairshare.Launch(nil), st.Launches...))
	p.left = append(p.left, append([]fairshare.Left(nil), st.Left...))
	if len(p.answers) == 0 {
		return nil, 0
	}
	v := p.answers[0]
	p.answers = p.answers[1:]
	return v, 0
}

// scene is a scheduler whose GPU and guests are the test's.
type scene struct {
	t      testing.TB
	sched  *Scheduler
	clock  clock.Sim
	policy *script
	guests []*Guest
	used   []accounting.GroupTime // reused by rounds of a benchmark
}

func newScene(t testing.TB) *scene {
	s := &scene{t: t, policy: &script{}}
	var err error
	s.sched, err = New(Options{
		Name: "gpu0", Clock: &s.clock, Log: slog.New(slog.DiscardHandler), Policy: noPolicy,
		GPU: GPU{Watch: accounting.Config{Piece: -1}.WithDefaults()},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.script("", false)
	t.Cleanup(func() {
		for _, g := range s.guests {
			if err := g.o.Page.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// script puts the script in the place of the policy.
func (s *scene) script(name string, byKernel bool) {
	s.sched.mu.Lock()
	defer s.sched.mu.Unlock()
	s.sched.usePolicy(name, s.policy, byKernel)
}

// join adds a guest with a context for each channel group. Guests join in order of id; 0 is the
// next.
func (s *scene) join(id fairshare.GuestID, weight float64, groups ...uint16) *Guest {
	return s.joinWith(id, GuestOptions{Terms: ipc.Terms{Weight: weight}}, groups...)
}

// joinWith is join for a guest with options, to which a page and a name are added.
func (s *scene) joinWith(id fairshare.GuestID, o GuestOptions, groups ...uint16) *Guest {
	s.t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		s.t.Fatal(err)
	}
	page.Context(0).SetLeavesUnstarted()
	for i, group := range groups {
		page.Context(i).Reset(1)
		page.Context(i).SetLeavesUnstarted()
		page.Context(i).SetReady(group)
	}
	o.Name, o.Page = string(rune('a'+max(id, 1)-1)), page
	g := NewGuest(o)
	if s.sched.Add(g); id != 0 && g.id != id {
		s.t.Fatalf("guest %d joined as guest %d", g.id, id)
	}
	s.guests = append(s.guests, g)
	return g
}

// weigh gives a guest another weight.
func weigh(g *Guest, weight float64) {
	t := g.Terms()
	t.Weight = weight
	g.SetTerms(t)
}

// require is what testing.TB and rapid.T have in common.
type require interface {
	Helper()
	Fatal(...any)
}

// leave takes the guest at index i away.
func (s *scene) leave(i int) {
	s.sched.Remove(s.guests[i])
	if err := s.guests[i].o.Page.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.guests = append(s.guests[:i:i], s.guests[i+1:]...)
}

// phase returns a watched phase of a length in which groups were busy. The rest is idle.
func phase(length time.Duration, groups ...accounting.GroupTime) accounting.Phase {
	p := accounting.Phase{End: length, Groups: groups}
	p.Idle = length - p.Busy()
	return p
}

func busy(group accounting.GroupID, d time.Duration) accounting.GroupTime {
	return accounting.GroupTime{Group: group, Busy: d, Runs: 1}
}

func (s *scene) poll(length time.Duration, groups ...accounting.GroupTime) accounting.Plan {
	s.clock.Advance(length)
	p := phase(length, groups...)
	return s.sched.PollEnded(&p)
}

// quiet ends a quiet phase of which the beginning was watched.
func (s *scene) quiet(length, watched time.Duration, groups ...accounting.GroupTime) {
	s.clock.Advance(length)
	s.sched.QuietEnded(&accounting.Quiet{Watched: phase(watched, groups...), Unwatched: length - watched})
}

// next has the policy answer the next event with verdicts.
func (s *scene) next(v ...fairshare.Verdict) { s.policy.answers = append(s.policy.answers, v) }

func suspending(id fairshare.GuestID) fairshare.Verdict {
	return fairshare.Verdict{Guest: id, Action: fairshare.Suspend}
}

func resume(id fairshare.GuestID) fairshare.Verdict {
	return fairshare.Verdict{Guest: id, Action: fairshare.Resume}
}

func (s *scene) wantUsed(want ...time.Duration) {
	s.t.Helper()
	for i, g := range s.guests {
		if got := g.o.Page.Bill().Used; got != want[i] {
			s.t.Errorf("guest %s: charged %v, want %v", g.o.Name, got, want[i])
		}
	}
}

// until waits for something that other goroutines do.
func until(t testing.TB, what string, ask func() bool) {
	t.Helper()
	proctest.Until(t, what, ask)
}
