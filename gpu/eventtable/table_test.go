package eventtable

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

var errStep = errors.New("step failed")

// TestRegisterGivesBack fails each step of a registration in turn: what was taken before is given
// back in the opposite order, and the row is free.
func TestRegisterGivesBack(t *testing.T) {
	const steps = 5
	for failing := range steps + 1 {
		var table Table
		var taken, back []int
		var list []Step
		for i := range steps {
			list = append(list, Step{
				Take: func() error {
					if i == failing {
						return errStep
					}
					taken = append(taken, i)
					return nil
				},
				Back: func() { back = append(back, i) },
			})
		}
		n, err := table.Register("guest", abi.EventRow{Function: 7}, list...)
		if failing == steps {
			if err != nil {
				t.Fatal(err)
			}
			if gone, err := table.Unregister(n); !gone || err != nil {
				t.Fatalf("Unregister: %v, %v", gone, err)
			}
		} else if !errors.Is(err, errStep) {
			t.Fatalf("step %d fails: %v", failing, err)
		}
		slices.Reverse(back)
		if !slices.Equal(taken, back) || len(taken) != failing {
			t.Errorf("step %d fails: took %v, gave back %v", failing, taken, back)
		}
		if table.Used() != 0 {
			t.Errorf("step %d fails: %d rows are taken", failing, table.Used())
		}
	}
}

// TestBounds fills an owner's part and the table, and registers the same kernel over and over.
func TestBounds(t *testing.T) {
	var table Table
	for o := range Rows / OwnerRows {
		owner := fmt.Sprint("guest ", o)
		for range OwnerRows {
			if _, err := table.Register(owner, abi.EventRow{Function: 7}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := table.Register(owner, abi.EventRow{Function: 7}); !errors.Is(err, gpu.ErrFull) {
			t.Errorf("one more of %s: %v", owner, err)
		}
	}
	if _, err := table.Register("another", abi.EventRow{}, Step{Take: func() error { t.Error("a step of a full table"); return nil }}); !errors.Is(err, gpu.ErrFull) {
		t.Errorf("a full table: %v", err)
	}
}

// TestUnregisterWaits: what is under way ends first, and a second call is an error.
func TestUnregisterWaits(t *testing.T) {
	var table Table
	back := false
	n, err := table.Register("guest", abi.EventRow{Function: 7}, Step{Take: func() error { return nil }, Back: func() { back = true }})
	if err != nil {
		t.Fatal(err)
	}
	table.Started(n, 2)
	if gone, err := table.Unregister(n); gone || err != nil {
		t.Fatalf("Unregister with two events under way: %v, %v", gone, err)
	}
	if _, err := table.Unregister(n); !errors.Is(err, ErrEnding) {
		t.Errorf("Unregister again: %v", err)
	}
	if table.Ended(n) || back {
		t.Error("gone with an event under way")
	}
	if !table.Ended(n) || !back || table.Used() != 0 {
		t.Error("not gone with the last event")
	}
	if _, err := table.Unregister(n); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("Unregister of a free row: %v", err)
	}
}

// TestTableProperty registers, unregisters, starts, ends and drops at random. Rows belong to one
// registration at a time, what was taken is given back once, and the bounds hold.
func TestTableProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		type live struct {
			n, flying int
			owner     string
			ending    bool
		}
		var lives []*live
		held := map[int]int{} // by row: how often taken and not given back
		remove := func(l *live) { lives = slices.DeleteFunc(lives, func(o *live) bool { return o == l }) }
		pick := func(t *rapid.T) *live {
			if len(lives) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(lives).Draw(t, "which")
		}
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				l := &live{owner: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"), n: -1}
				own := 0
				for _, o := range lives {
					if o.owner == l.owner {
						own++
					}
				}
				fails := rapid.Bool().Draw(t, "fails")
				n, err := table.Register(l.owner, abi.EventRow{Function: uint64(len(lives))},
					Step{func() error { held[0]++; return nil }, func() { held[0]-- }},
					Step{func() error {
						if fails {
							return errStep
						}
						return nil
					}, func() {}})
				full := own >= OwnerRows || len(lives) >= Rows
				if (err == nil) != (!full && !fails) {
					t.Fatalf("%d of the owner, %d in all, step fails %v: %v", own, len(lives), fails, err)
				}
				if err == nil {
					l.n = n
					lives = append(lives, l)
				}
			},
			"start": func(t *rapid.T) {
				l := pick(t)
				if l.ending {
					t.Skip("ending")
				}
				table.Started(l.n, 1)
				l.flying++
			},
			"end": func(t *rapid.T) {
				l := pick(t)
				if l.flying == 0 {
					t.Skip("idle")
				}
				l.flying--
				if gone := table.Ended(l.n); gone != (l.ending && l.flying == 0) {
					t.Fatalf("gone %v with %d under way", gone, l.flying)
				} else if gone {
					remove(l)
				}
			},
			"unregister": func(t *rapid.T) {
				l := pick(t)
				gone, err := table.Unregister(l.n)
				if (err != nil) != l.ending || gone && l.flying > 0 {
					t.Fatalf("Unregister: %v, %v", gone, err)
				}
				l.ending = true
				if gone {
					remove(l)
				}
			},
			"drop": func(t *rapid.T) {
				l := pick(t)
				table.Drop(l.n)
				remove(l)
			},
			"": func(t *rapid.T) {
				if table.Used() != len(lives) || held[0] != len(lives) {
					t.Fatalf("%d rows used, %d held, %d alive", table.Used(), held[0], len(lives))
				}
				rows := map[int]bool{}
				for _, l := range lives {
					if _, ok := table.Row(l.n); !ok || rows[l.n] {
						t.Fatalf("row %d is free or shared", l.n)
					}
					rows[l.n] = true
				}
			},
		})
	})
}
