package scheduler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// turner is a script that knows whose turn it is.
type turner struct {
	script
	turn fairshare.Turn
}

func (p *turner) Turn() fairshare.Turn { return p.turn }

// TestOpenTurn: executors are told of their guest's turn, until another guest has it, the guest is
// suspended or leaves, or the policy no longer decides about launches.
func TestOpenTurn(t *testing.T) {
	s := newScene(t)
	p := new(turner)
	s.sched.usePolicy("", p, true)
	s.join(1, 1, 1)
	s.join(2, 1, 2)
	want := func(name string, turns ...ipc.Turn) {
		t.Helper()
		s.sched.Changed(0)
		for i, g := range s.guests {
			if diff := cmp.Diff(turns[i], g.o.Page.Turn()); diff != "" {
				t.Errorf("%s: guest %d's turn (-want +got):\n%s", name, g.id, diff)
			}
		}
	}
	none := ipc.Turn{}
	until := func(d time.Duration) time.Duration { return s.clock.Now() + d }
	s.clock.Advance(time.Hour)
	want("nobody's", none, none)
	p.turn = fairshare.Turn{Guest: 1, Lasts: 5 * ms, Behind: true}
	want("guest 1's", ipc.Turn{Until: until(5 * ms), Behind: true}, none)
	s.clock.Advance(ms)
	want("longer", ipc.Turn{Until: until(5 * ms), Behind: true}, none)
	p.turn = fairshare.Turn{Guest: 2, Lasts: ms}
	want("guest 2's", none, ipc.Turn{Until: until(ms)})
	p.answers = [][]fairshare.Verdict{{{Guest: 2, Action: fairshare.Suspend}}}
	want("guest 2 is suspended", none, none)
	p.answers = [][]fairshare.Verdict{{{Guest: 2, Action: fairshare.Resume}}}
	want("guest 2's again", none, ipc.Turn{Until: until(ms)})
	s.sched.usePolicy("", p, false)
	want("launches need none", none, none)
	s.sched.usePolicy("", p, true)
	want("guest 2's again", none, ipc.Turn{Until: until(ms)})
	g := s.guests[1]
	s.sched.Remove(g)
	if turn := g.o.Page.Turn(); turn != none {
		t.Fatalf("a guest that has left has %+v", turn)
	}
	s.guests = s.guests[:1]
	if err := g.o.Page.Close(); err != nil {
		t.Fatal(err)
	}
	want("guest 2 has left", none)
}

// TestTurnNeedsNoVerdict: a launch that went to the GPU in its guest's turn counts as let there, also
// if the turn has ended since.
func TestTurnNeedsNoVerdict(t *testing.T) {
	s := newScene(t)
	p := &turner{turn: fairshare.Turn{Guest: 1, Lasts: 5 * ms}}
	s.sched.usePolicy("", p, true)
	s.join(1, 1, 1)
	s.join(2, 1, 2)
	s.clock.Advance(time.Hour)
	s.sched.Changed(0)
	p.turn = fairshare.Turn{}
	s.sched.Changed(0)
	for i, want := range [][]bool{{true, false}, {false, false}} {
		s.sched.LaunchesChanged()
		var got []bool
		for _, g := range s.sched.launches.slots {
			got = append(got, g.InTurn)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read %d (-want +got):\n%s", i+1, diff)
		}
	}
}
