package scheduler

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/mediator/ipc"
)

// TestNumbers: as guests come and go, no two contexts have one number, a guest's numbers stay the
// same, and numbers don't grow beyond the number of guests.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var guests []*Guest
		were := make(map[*Guest]int)
		r.Repeat(map[string]func(*rapid.T){
			"come": func(*rapid.T) { guests = append(guests, &Guest{}) },
			"go": func(r *rapid.T) {
				if len(guests) > 0 {
					i := rapid.IntRange(0, len(guests)-1).Draw(r, "who")
					guests = slices.Delete(guests, i, i+1)
				}
			},
			"": func(r *rapid.T) {
				most := len(guests)
				for _, g := range guests {
					most = max(most, were[g])
				}
				assignNumbers(guests)
				seen := make(map[accounting.GroupID]bool)
				for _, g := range guests {
					if g.number < 1 || g.number > most || were[g] != 0 && were[g] != g.number {
						r.Fatalf("%d guests: one has %d, and had %d", len(guests), g.number, were[g])
					}
					were[g] = g.number
					for slot := range ipc.MaxContexts {
						if seen[g.contextGroup(slot)] {
							r.Fatalf("two contexts are %d", g.contextGroup(slot))
						}
						seen[g.contextGroup(slot)] = true
					}
				}
			},
		})
	})
}
