package scheduler

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

// TestChargesAddUp runs rounds over guests that come, go, and change in weight, under each policy,
// and compares what is charged with the time that passed.
func TestChargesAddUp(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newScene(t)
		policy := rapid.SampledFrom(fairshare.Names()).Draw(r, "policy")
		if err := s.sched.SetPolicy(policy); err != nil {
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
				if g.Suspended() {
					continue
				}
				d := time.Duration(rapid.Int64Range(0, int64(left)).Draw(r, name))
				g.o.Executors.Groups(func(id accounting.GroupID) {
					if d > 0 {
						groups = append(groups, busy(id, d))
					}
				})
				g.o.Page.Context(0).SetBacklog(rapid.Bool().Draw(r, "backlog"))
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
				s.join(next, rapid.Float64Range(0.001, 100).Draw(r, "weight"), uint16(next))
				s.sched.Changed(next)
			},
			"leave": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				i := rapid.IntRange(0, len(s.guests)-1).Draw(r, "who")
				g := s.guests[i]
				gone += g.o.Page.Bill().Used
				s.leave(i)
				s.sched.Changed(g.id)
			},
			"weight": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				g := rapid.SampledFrom(s.guests).Draw(r, "who")
				weigh(g, rapid.Float64Range(0.001, 100).Draw(r, "weight"))
				s.sched.Changed(g.id)
			},
			"quota": func(*rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				g := rapid.SampledFrom(s.guests).Draw(r, "who")
				limit := rapid.Float64Range(0, 1).Draw(r, "cap")
				guarantee := min(limit, 1./8) // of at most eight guests
				t := g.Terms()
				t.Cap, t.Guarantee = limit, guarantee
				g.SetTerms(t)
				quotas = true
				s.sched.Changed(g.id)
			},
			"policy": func(*rapid.T) {
				policy = rapid.SampledFrom(fairshare.Names()).Draw(r, "policy")
				if err := s.sched.SetPolicy(policy); err != nil {
					r.Fatal(err)
				}
				s.sched.Changed(0)
			},
			"round": func(*rapid.T) {
				q := accounting.Quiet{
					Watched:   watch("watched", duration("watched", 4*ms)),
					Unwatched: duration("unwatched", 20*ms),
				}
				s.clock.Advance(q.Length())
				s.sched.QuietEnded(&q)
				p := watch("polled", 1+duration("poll", 4*ms))
				s.clock.Advance(p.End)
				s.sched.PollEnded(&p)
				total += q.Length() + p.End
				slack += time.Duration(2*len(s.guests) + 6)
			},
			"": func(*rapid.T) {
				charged := gone
				var shares, entitled float64
				for _, g := range s.guests {
					b := g.o.Page.Bill()
					if b.Used < 0 || !cmp.Equal(g.o.Page.Terms(), g.Terms(), cmpopts.EquateApprox(0, 1e-9)) {
						r.Fatalf("guest %d: bill %+v, terms %+v", g.id, b, g.o.Page.Terms())
					}
					charged += b.Used
					if policy == "none" && !quotas && g.Suspended() {
						r.Fatalf("guest %d is suspended under policy none", g.id)
					}
					if g.Suspended() != (g.o.Page.StoredSuspendWord() == ipc.Suspend) {
						r.Fatalf("guest %d: suspended %v, page says %v", g.id, g.Suspended(), g.o.Page.StoredSuspendWord())
					}
					shares, entitled = shares+g.share, entitled+g.entitled
				}
				if shares > 1+1e-9 || entitled > 1+1e-9 {
					r.Fatalf("shares add up to %v, entitlements to %v", shares, entitled)
				}
				if len(s.sched.removed) > 0 || len(s.sched.owners) > len(s.guests) {
					r.Fatalf("remembered: %d guests that left, %d groups of %d guests", len(s.sched.removed), len(s.sched.owners), len(s.guests))
				}
				tl := &s.sched.tally
				if passed := tl.busy + tl.idle + tl.switching + tl.unwatched; abs(passed-total) > slack {
					r.Fatalf("busy %v, idle %v, unwatched %v: want %v together", tl.busy, tl.idle, tl.unwatched, total)
				}
				if abs(charged-tl.busy) > slack {
					r.Fatalf("charged %v of %v", charged, tl.busy)
				}
				if tl.busyLately < 0 || tl.busyLately > 1 || math.IsNaN(tl.busyLately) {
					r.Fatalf("busy ratio %v", tl.busyLately)
				}
			},
		})
	})
}

func abs(d time.Duration) time.Duration { return max(d, -d) }
