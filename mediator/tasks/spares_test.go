package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare/place"
)

// lend lends, or fails the test.
func lend(t *testing.T, x *Table, gpus []GPU, s Spare) {
	t.Helper()
	if !x.Lend(s, gpus) {
		t.Fatalf("%+v is not lent", s)
	}
}

// TestSpareMakesRoom: a spare ends for a task that needs its memory, and the task is told when it has.
func TestSpareMakesRoom(t *testing.T) {
	x, open := newTable(t, 1), make([]GPU, 1)
	lend(t, x, open, Spare{Guest: "a", Number: 1, Bytes: 20})
	lend(t, x, open, Spare{Guest: "plain", Number: 7, Bytes: 20})
	if n, bytes := x.Lent(0); n != 2 || bytes != 40 {
		t.Errorf("%d spares have %d bytes", n, bytes)
	}
	b0, b1 := Key{"b", 0, 1}, Key{"b", 1, 1}
	submit(t, x, 1, b0, 60)
	wantDecisions(t, "room beside both", x.Decide(2, open), Decision{Key: b0, Granted: 60, Waited: 1})
	submit(t, x, 3, b1, 15)
	wantDecisions(t, "no room beside the first", x.Decide(4, open), Decision{Key: Key{Guest: "a"}, Recall: 1})
	wantDecisions(t, "it has not ended", x.Decide(5, open))
	if at, ok := x.Next(5); !ok || at != 4+recallLimit || !x.Recalling() {
		t.Errorf("to be asked again at %v, %v", at, ok)
	}
	x.SpareGone("a", 2)
	wantDecisions(t, "another spare has", x.Decide(6, open))
	x.SpareGone("a", 1)
	wantDecisions(t, "it has", x.Decide(7, open), Decision{Key: b1, Granted: 15, Waited: 1})
	if n, bytes := x.Lent(0); n != 1 || bytes != 20 || x.Recalling() {
		t.Errorf("%d spares have %d bytes", n, bytes)
	}
}

// TestSpareThatDoesNotEnd: tasks wait for a spare no longer than recallLimit.
func TestSpareThatDoesNotEnd(t *testing.T) {
	x, open := newTable(t, 1), make([]GPU, 1)
	lend(t, x, open, Spare{Guest: "b", Number: 1, Bytes: 50})
	a0 := Key{"a", 0, 1}
	submit(t, x, 0, a0, 60)
	wantDecisions(t, "first", x.Decide(0, open), Decision{Key: Key{Guest: "b"}, Recall: 1})
	wantDecisions(t, "soon", x.Decide(recallLimit-1, open))
	wantDecisions(t, "later", x.Decide(recallLimit, open), Decision{Key: a0, Granted: 60})
}

// TestSpareIsUsed: a task that begins where its guest has a spare takes that for its own memory.
func TestSpareIsUsed(t *testing.T) {
	x, open := newTable(t, 1), make([]GPU, 1)
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 80, Own: 20}); err != nil {
		t.Fatal(err)
	}
	lend(t, x, open, Spare{Guest: "a", Number: 3, Bytes: 20})
	a0 := Key{"a", 0, 1}
	submit(t, x, 0, a0, 80)
	wantDecisions(t, "at once", x.Decide(0, open), Decision{Key: a0, Granted: 80})
	if n, _ := x.Lent(0); n != 0 {
		t.Errorf("%d spares are left", n)
	}
}

// TestNoSpare: nothing is lent that is, or may be, another's.
func TestNoSpare(t *testing.T) {
	one := Spare{Guest: "a", Number: 1, Bytes: 20}
	for name, c := range map[string]struct {
		s      Spare
		gpu    GPU
		before func(x *Table)
	}{
		"no number":       {s: Spare{Guest: "a", Bytes: 20}},
		"no such GPU":     {s: Spare{Guest: "a", Number: 1, GPU: 1, Bytes: 20}},
		"before the GPUs": {s: Spare{Guest: "a", Number: 1, GPU: -1, Bytes: 20}},
		"more than all":   {s: Spare{Guest: "a", Number: 1, Bytes: 1<<64 - 1}},
		"closed":          {s: one, gpu: GPU{Closed: true}},
		"pinned":          {s: one, gpu: GPU{Pinned: 81}},
		"kept":            {s: one, gpu: GPU{Kept: 1<<64 - 1}},
		"granted": {s: one, before: func(x *Table) {
			submit(t, x, 0, Key{"b", 0, 1}, 90)
			x.Decide(0, make([]GPU, 1))
		}},
		"somebody waits": {s: one, before: func(x *Table) { submit(t, x, 0, Key{"b", 0, 1}, 10) }},
		"a second":       {s: one, before: func(x *Table) { lend(t, x, make([]GPU, 1), Spare{Guest: "a", Number: 9}) }},
		"many": {s: one, before: func(x *Table) {
			for i := range MaxSpares {
				lend(t, x, make([]GPU, 1), Spare{Guest: string(rune('c' + i)), Number: 1})
			}
		}},
	} {
		x := newTable(t, 1)
		if c.before != nil {
			c.before(x)
		}
		if x.Lend(c.s, []GPU{c.gpu}) {
			t.Errorf("%s: it is lent", name)
		}
	}
}

// TestSpareEndsForOthers: what guests are promised, or may take, that don't float ends spares, as does a
// GPU's being closed.
func TestSpareEndsForOthers(t *testing.T) {
	for _, g := range []GPU{{Pinned: 90}, {Kept: 90}, {Closed: true}} {
		x := newTable(t, 1)
		lend(t, x, make([]GPU, 1), Spare{Guest: "a", Number: 1, Bytes: 20})
		wantDecisions(t, "recalled", x.Decide(1, []GPU{g}), Decision{Key: Key{Guest: "a"}, Recall: 1})
	}
}

// TestSpareEndsForGrowth: more memory is told of when the spare has ended that had it.
func TestSpareEndsForGrowth(t *testing.T) {
	x, open := newTable(t, 1), make([]GPU, 1)
	b0 := Key{"b", 0, 1}
	submit(t, x, 0, b0, 40)
	x.Decide(0, open)
	lend(t, x, open, Spare{Guest: "a", Number: 1, Bytes: 50})
	if d, ok := x.Grow(1, b0, 70, open); ok {
		t.Errorf("%+v at once", d)
	}
	wantDecisions(t, "recalled", x.Decide(2, open), Decision{Key: Key{Guest: "a"}, Recall: 1})
	x.SpareGone("a", 1)
	wantDecisions(t, "granted", x.Decide(3, open), Decision{Key: b0, Granted: 75, Want: 70, Before: 40})
}

// TestSpareOfTheDead: the spares of a guest that has ended are gone, and a daemon that restarts learns
// of those that are there.
func TestSpareOfTheDead(t *testing.T) {
	x, open := newTable(t, 1), make([]GPU, 1)
	lend(t, x, open, Spare{Guest: "a", Number: 1, Bytes: 20})
	x.RemoveSpares("a")
	x.AdoptSpare(Spare{Guest: "b", Number: 4, Bytes: 30})
	x.AdoptSpare(Spare{Guest: "b", Number: 5, Bytes: 30}) // a guest has one
	x.AdoptSpare(Spare{Guest: "c", Number: 5, GPU: 9, Bytes: 30})
	if n, bytes := x.Lent(0); n != 1 || bytes != 30 {
		t.Errorf("%d spares have %d bytes", n, bytes)
	}
	wantDecisions(t, "no room any more", x.Decide(0, []GPU{{Pinned: 90}}), Decision{Key: Key{Guest: "b"}, Recall: 4})
}

// TestSparesChangeNothing: tasks are placed the same with spares that end when they are told to as
// without; and what the told tasks, spares and others have together is never more than there is.
func TestSparesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus = 2
		specs := []place.Spec{{Memory: 100, SMs: 2, WarpsPerSM: 8, BlocksPerSM: 4}, {Memory: 60, SMs: 1, WarpsPerSM: 8, BlocksPerSM: 4}}
		tables := make([]*Table, 2) // without and with spares
		names := []string{"a", "b", "c"}
		own := rapid.Uint64Range(0, 10).Draw(t, "own")
		for i := range tables {
			x, err := New(specs, place.Warps{})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if err := x.Admit(0, name, Guest{Weight: 1, Memory: 80, Own: own}); err != nil {
					t.Fatal(err)
				}
			}
			tables[i] = x
		}
		plain, lent := tables[0], tables[1]
		now, generation, number := time.Duration(0), uint32(0), uint64(0)
		outside := make([]GPU, gpus)
		told := map[Key]Decision{} // what tasks know that they have
		spares := map[string]Spare{}
		tell := func(ds []Decision) (recalls, rest []Decision) {
			for _, d := range ds {
				if d.Recall > 0 {
					recalls = append(recalls, d)
					continue
				}
				rest = append(rest, d)
			}
			return recalls, rest
		}
		end := func(d *Decision) {
			if s, ok := spares[d.Key.Guest]; ok && s.Number == d.Recall {
				delete(spares, d.Key.Guest)
			}
			lent.SpareGone(d.Key.Guest, d.Recall)
		}
		check := func() {
			for i := range gpus {
				sum := outside[i].Pinned
				for _, d := range told {
					if d.GPU == i {
						sum += d.Granted + own
					}
				}
				for _, s := range spares {
					if s.GPU == i {
						sum += s.Bytes
					}
				}
				if sum > specs[i].Memory && sum > outside[i].Pinned {
					if granted := lent.Granted(i); granted+outside[i].Pinned <= specs[i].Memory {
						t.Fatalf("GPU %d: %d of %d bytes: told %v, spares %v, outside %+v", i, sum, specs[i].Memory, told, spares, outside[i])
					}
				}
			}
		}
		decide := func() {
			_, want := tell(plain.Decide(now, outside))
			var got []Decision
			for {
				recalls, rest := tell(lent.Decide(now, outside))
				got = append(got, rest...)
				for _, d := range rest {
					if d.Granted > 0 {
						told[d.Key] = d
						if s, ok := spares[d.Key.Guest]; ok && s.GPU == d.GPU { // the task takes it
							delete(spares, d.Key.Guest)
						}
					}
				}
				if len(recalls) == 0 {
					break
				}
				for i := range recalls {
					end(&recalls[i])
				}
			}
			order := func(a, b Decision) int {
				if a.Key.Guest != b.Key.Guest {
					return int(a.Key.Guest[0]) - int(b.Key.Guest[0])
				}
				return int(a.Key.Generation) - int(b.Key.Generation)
			}
			slices.SortFunc(want, order)
			slices.SortFunc(got, order)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("with spares (-without +with):\n%s", diff)
			}
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				generation++
				k := Key{rapid.SampledFrom(names).Draw(t, "guest"), 0, generation}
				r := ask(rapid.Uint64Range(1, 60).Draw(t, "memory"))
				for _, x := range tables {
					if err := x.Submit(now, k, r); err != nil {
						t.Fatal(err)
					}
				}
				decide()
			},
			"free": func(t *rapid.T) {
				all := plain.Tasks(now)
				if len(all) == 0 {
					return
				}
				k := all[rapid.IntRange(0, len(all)-1).Draw(t, "task")].Key
				for _, x := range tables {
					x.Free(now, k)
				}
				delete(told, k)
				decide()
			},
			"grow": func(t *rapid.T) {
				all := plain.Placed(rapid.SampledFrom(names).Draw(t, "guest"))
				if len(all) == 0 || told[all[0].Key].Granted == 0 {
					return
				}
				k, n := all[0].Key, all[0].Granted+rapid.Uint64Range(1, 20).Draw(t, "more")
				want, answered := plain.Grow(now, k, n, outside)
				got, told1 := lent.Grow(now, k, n, outside)
				if told1 {
					if !answered || want != got {
						t.Fatalf("%+v %v, with spares %+v", want, answered, got)
					}
					told[k] = got
				} else if answered { // it comes when the spares have ended
					for {
						recalls, rest := tell(lent.Decide(now, outside))
						for i := range recalls {
							end(&recalls[i])
						}
						if slices.Contains(rest, want) {
							told[k] = want
							break
						}
						if len(recalls) == 0 {
							t.Fatalf("%+v never comes", want)
						}
					}
				}
				decide()
			},
			"lend": func(t *rapid.T) {
				number++
				s := Spare{
					Guest: rapid.SampledFrom(append(names, "p")).Draw(t, "guest"), Number: number,
					GPU: rapid.IntRange(0, gpus-1).Draw(t, "GPU"), Bytes: own + rapid.Uint64Range(0, 5).Draw(t, "bytes"),
				}
				if lent.Lend(s, outside) {
					spares[s.Guest] = s
				}
				check()
			},
			"outside": func(t *rapid.T) {
				g := &outside[rapid.IntRange(0, gpus-1).Draw(t, "GPU")]
				g.Pinned = rapid.Uint64Range(0, 50).Draw(t, "pinned")
				g.Kept = rapid.Uint64Range(0, 30).Draw(t, "kept")
				decide()
			},
			"end": func(t *rapid.T) {
				if len(lent.spares) > 0 {
					s := lent.spares[0]
					end(&Decision{Key: Key{Guest: s.guest}, Recall: s.number})
				}
				check()
			},
			"time": func(t *rapid.T) {
				now += time.Duration(rapid.Int64Range(1, int64(40*time.Second)).Draw(t, "later"))
				decide()
			},
		})
	})
}
