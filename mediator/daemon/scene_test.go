package daemon

import (
	"log/slog"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/clock"
	"vgpud/fairshare"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

const ms = time.Millisecond

// script is a policy that answers what it is told to, and keeps what it saw.
type script struct {
	answers [][]fairshare.Verdict
	events  []fairshare.Event
	states  [][]fairshare.Guest
	// launches are those that it was shown, for each of the states.
	launches [][]fairshare.Launch
}

func (p *script) Decide(_ time.Duration, ev fairshare.Event, st fairshare.State) ([]fairshare.Verdict, time.Duration) {
	p.events = append(p.events, ev)
	p.states = append(p.states, append([]fairshare.Guest(nil), st.Guests...))
	p.launches = append(p.launches, append([]fairshare.Launch(nil), st.Launches...))
	if len(p.answers) == 0 {
		return nil, 0
	}
	v := p.answers[0]
	p.answers = p.answers[1:]
	return v, 0
}

// scene is a share whose GPU and guests are the test's.
type scene struct {
	t      testing.TB
	share  *share
	clock  clock.Sim
	policy *script
	guests []*guest
}

func newScene(t testing.TB) *scene {
	watch := accounting.Config{Piece: -1}.WithDefaults()
	s := &scene{t: t, policy: &script{}}
	s.share = &share{
		config: GPUConfig{Name: "gpu0", Kind: "soft"}, opened: opened{watching: watching{watch: watch}}, planner: accounting.NewPlanner(watch), clock: &s.clock,
		log: slog.New(slog.DiscardHandler), recent: make(map[fairshare.GuestID]*recent), policy: s.policy,
	}
	s.share.guests = func(f func([]*guest)) { f(s.guests) }
	t.Cleanup(func() {
		for _, g := range s.guests {
			if err := g.page.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// join adds a guest with a context for each channel group.
func (s *scene) join(id fairshare.GuestID, weight float64, groups ...uint16) *guest {
	page, err := ipc.NewControlPage()
	if err != nil {
		s.t.Fatal(err)
	}
	for i, group := range groups {
		page.Context(i).Reset(1)
		page.Context(i).SetReady(group)
	}
	g := &guest{id: id, spec: ipc.Spec{Name: string(rune('a' + id - 1)), GPU: ipc.GPU{Name: "gpu0"}}, page: page, terms: api.Terms{Weight: weight}}
	s.guests = append(s.guests, g)
	return g
}

// weigh gives a guest another weight.
func weigh(t require, g *guest, weight float64) {
	t.Helper()
	if _, err := g.amend(&api.VMUpdate{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
}

// require is what testing.TB and rapid.T have in common.
type require interface {
	Helper()
	Fatal(...any)
}

// rang is what a listener does when it is rung for.
func (s *share) rang() {
	s.guests(func(guests []*guest) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attendLaunches(guests)
	})
}

// leave takes the guest at index i away.
func (s *scene) leave(i int) {
	if err := s.guests[i].page.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.guests = append(s.guests[:i:i], s.guests[i+1:]...)
}

// phase is a watched phase of a length, in which groups were busy; the rest is
// idle.
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
	return s.share.PollEnded(&p)
}

// quiet is a quiet phase of which the beginning was watched.
func (s *scene) quiet(length, watched time.Duration, groups ...accounting.GroupTime) {
	s.clock.Advance(length)
	s.share.QuietEnded(&accounting.Quiet{Watched: phase(watched, groups...), Unwatched: length - watched})
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
		if got := g.page.Bill().Used; got != want[i] {
			s.t.Errorf("guest %s: charged %v, want %v", g.spec.Name, got, want[i])
		}
	}
}
