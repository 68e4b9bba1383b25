package daemon

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
)

// TestChargesAddUp runs rounds over guests that come, go, and change in weight,
// under each policy, and holds what is charged against the time that passed.
func TestChargesAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newScene(t)
		policy := rapid.SampledFrom(fairshare.Names()).Draw(r, "policy")
		if err := s.share.setPolicy(policy); err != nil {
			r.Fatal(err)
		}
		quotas := false
		var next fairshare.GuestID
		var gone, total time.Duration // charged to guests that left; passed
		slack := time.Duration(0)     // each charge is cut to a nanosecond
		// watch draws a phase in which the guests that may run do.
		watch := func(name string, length time.Duration) accounting.Phase {
			left := length
			var groups []accounting.GroupTime
			for _, g := range s.guests {
				if g.heldNow() {
					continue
				}
				d := time.Duration(rapid.Int64Range(0, int64(left)).Draw(r, name))
				g.groups(func(id accounting.GroupID) {
					if d > 0 {
						groups = append(groups, busy(id, d))
					}
				})
				g.page.Context(0).SetBacklog(rapid.Bool().Draw(r, "backlog"))
				left -= d
			}
			return phase(length, groups...)
		}
		duration := func(name string, atMost time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(atMost)).Draw(r, name))
		}
		r.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) {
				if len(s.guests) == 8 {
					return
				}
				next++
				s.join(next, rapid.Float64Range(api.MinWeight, 100).Draw(r, "weight"), uint16(next))
				s.share.changed(next)
			},
			"leave": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				i := rapid.IntRange(0, len(s.guests)-1).Draw(r, "who")
				g := s.guests[i]
				gone += g.page.Bill().Used
				s.leave(i)
				s.share.changed(g.id)
			},
			"weight": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				g := rapid.SampledFrom(s.guests).Draw(r, "who")
				weigh(r, g, rapid.Float64Range(api.MinWeight, 100).Draw(r, "weight"))
				s.share.changed(g.id)
			},
			"quota": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				g := rapid.SampledFrom(s.guests).Draw(r, "who")
				limit := rapid.Float64Range(0, 1).Draw(r, "cap")
				guarantee := min(limit, 1./8) // of at most eight guests
				if _, err := g.amend(&api.VMUpdate{Cap: &limit, Guarantee: &guarantee}); err != nil {
					r.Fatal(err)
				}
				quotas = true
				s.share.changed(g.id)
			},
			"policy": func(*rapid.T) {
				policy = rapid.SampledFrom(fairshare.Names()).Draw(r, "policy")
				if err := s.share.setPolicy(policy); err != nil {
					r.Fatal(err)
				}
				s.share.changed(0)
			},
			"round": func(*rapid.T) {
				q := accounting.Quiet{
					Watched:   watch("watched", duration("watched", 4*ms)),
					Unwatched: duration("unwatched", 20*ms),
				}
				s.clock.Advance(q.Length())
				s.share.QuietEnded(&q)
				p := watch("polled", 1+duration("poll", 4*ms))
				s.clock.Advance(p.End)
				s.share.PollEnded(&p)
				total += q.Length() + p.End
				slack += time.Duration(2*len(s.guests) + 6)
			},
			"": func(*rapid.T) {
				charged := gone
				var shares, entitled float64
				for _, g := range s.guests {
					b := g.page.Bill()
					if b.Used < 0 || !cmp.Equal(api.Terms(g.page.Terms()), g.termsNow(), cmpopts.EquateApprox(0, 1e-9)) {
						r.Fatalf("guest %d: bill %+v, terms %+v", g.id, b, g.page.Terms())
					}
					charged += b.Used
					if policy == "none" && !quotas && g.heldNow() {
						r.Fatalf("guest %d is held under policy none", g.id)
					}
					if g.heldNow() != (g.page.StoredSuspendWord() == ipc.Suspend) {
						r.Fatalf("guest %d: held %v, page says %v", g.id, g.heldNow(), g.page.StoredSuspendWord())
					}
					shares, entitled = shares+g.share, entitled+g.entitled
				}
				if shares > 1+1e-9 || entitled > 1+1e-9 {
					r.Fatalf("shares add up to %v, entitlements to %v", shares, entitled)
				}
				if len(s.guests) > 0 && len(s.share.recent) != len(s.guests) {
					r.Fatalf("%d guests remembered of %d", len(s.share.recent), len(s.guests))
				}
				tl := &s.share.tally
				if passed := tl.busy + tl.idle + tl.switching + tl.unwatched; abs(passed-total) > slack {
					r.Fatalf("busy %v, idle %v, unwatched %v: want %v together", tl.busy, tl.idle, tl.unwatched, total)
				}
				if abs(charged-tl.busy) > slack {
					r.Fatalf("charged %v of %v", charged, tl.busy)
				}
				if tl.lately < 0 || tl.lately > 1 || math.IsNaN(tl.lately) {
					r.Fatalf("busy ratio %v", tl.lately)
				}
			},
		})
	})
}

func abs(d time.Duration) time.Duration { return max(d, -d) }
