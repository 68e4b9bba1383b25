package tasks

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare/place"
	"vgpud/mediator/vgpu/abi"
)

// newTable returns the table of a host with GPUs of 100 bytes, and guests a and b that may have 250.
func newTable(t testing.TB, gpus int) *Table {
	t.Helper()
	specs := make([]place.Spec, gpus)
	for i := range specs {
		specs[i] = place.Spec{Memory: 100, SMs: 2, WarpsPerSM: 32, BlocksPerSM: 16}
	}
	x, err := New(specs, place.Warps{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := x.Admit(0, name, Guest{Weight: 1, Memory: 100}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func ask(memory uint64) Request {
	return Request{TaskRequest: abi.TaskRequest{Memory: memory, Blocks: 4, Threads: 64}}
}

// submit submits a task.
func submit(t testing.TB, x *Table, now time.Duration, k Key, memory uint64) {
	t.Helper()
	if err := x.Submit(now, k, ask(memory)); err != nil {
		t.Fatal(err)
	}
}

func wantDecisions(t *testing.T, what string, got []Decision, want ...Decision) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestTasksWaitForEachOther fills two GPUs, has a third task wait, and places it when one ends.
func TestTasksWaitForEachOther(t *testing.T) {
	x := newTable(t, 2)
	open := make([]GPU, 2)
	a0, b0, b1 := Key{"a", 0, 1}, Key{"b", 0, 1}, Key{"b", 1, 1}
	submit(t, x, 1, a0, 80)
	submit(t, x, 1, b0, 60)
	submit(t, x, 1, b1, 40)
	wantDecisions(t, "first", x.Decide(2, open),
		Decision{Key: a0, GPU: 0, Granted: 80, Waited: 1},
		Decision{Key: b0, GPU: 1, Granted: 60, Waited: 1},
		Decision{Key: b1, GPU: 1, Granted: 40, Waited: 1})
	a1 := Key{"a", 1, 1}
	submit(t, x, 3, a1, 20)
	wantDecisions(t, "still room on the first", x.Decide(4, open), Decision{Key: a1, GPU: 0, Granted: 20, Waited: 1})
	x.Free(5, a1)
	c := Guest{Weight: 1, Memory: 100}
	if err := x.Admit(5, "c", c); err != nil {
		t.Fatal(err)
	}
	c0 := Key{"c", 0, 1}
	submit(t, x, 5, c0, 90)
	wantDecisions(t, "no room", x.Decide(6, open), Decision{Key: c0, Reason: abi.WaitMemory})
	wantDecisions(t, "no news", x.Decide(7, open))
	if got := x.Tasks(8); len(got) != 4 || got[3].Placed || got[3].GPU != -1 || got[3].Waited != 3 || got[3].Reason != abi.WaitMemory {
		t.Errorf("tasks: %+v", got)
	}
	x.Free(9, a0)
	wantDecisions(t, "room", x.Decide(9, open), Decision{Key: c0, GPU: 0, Granted: 90, Waited: 4})
	if n, memory := x.On("b", 1); n != 2 || memory != 100 || x.Granted(0) != 90 {
		t.Errorf("b has %d tasks with %d bytes there, and GPU 0 has granted %d", n, memory, x.Granted(0))
	}
	if x.Waits() != (Waits{}) {
		t.Errorf("waits of tasks that have not begun: %+v", x.Waits())
	}
	for _, d := range []Decision{{Key: b1, Waited: 1}, {Key: c0, Waited: 4}} {
		x.Began(&d)
	}
	if w := x.Waits(); w.Count != 2 || w.Sum != 5 || w.In[0] != 2 {
		t.Errorf("waits: %+v", w)
	}
	x.Remove(10, "b")
	if got := x.Tasks(10); len(got) != 1 || x.Granted(1) != 0 {
		t.Errorf("a guest that is gone has left %+v", got)
	}
}

// TestGuestsOwnTasksWait: what is beyond the guest's limit waits for its own tasks, in order, and is
// never refused for them.
func TestGuestsOwnTasksWait(t *testing.T) {
	x := newTable(t, 2)
	open := make([]GPU, 2)
	k := func(slot int) Key { return Key{"a", slot, 1} }
	submit(t, x, 0, k(0), 70)
	submit(t, x, 0, k(1), 50)
	submit(t, x, 0, k(2), 10) // there is room for it, but it came later
	wantDecisions(t, "one", x.Decide(0, open),
		Decision{Key: k(0), Granted: 70}, Decision{Key: k(1), Reason: abi.WaitGuest}, Decision{Key: k(2), Reason: abi.WaitGuest})
	if err := x.Submit(0, k(0), ask(1)); !errors.Is(err, ErrExists) {
		t.Errorf("begun twice: %v", err)
	}
	x.Free(1, k(1)) // it waits no more
	wantDecisions(t, "the next", x.Decide(1, open), Decision{Key: k(2), GPU: 1, Granted: 10, Waited: 1})
	x.Free(2, k(0))
	submit(t, x, 2, k(3), 90)
	wantDecisions(t, "all", x.Decide(2, open), Decision{Key: k(3), GPU: 0, Granted: 90})
}

// TestRefusedTasks: what no GPU could hold, or the guest may not have, is refused at once; what others
// have is not.
func TestRefusedTasks(t *testing.T) {
	x := newTable(t, 2)
	if err := x.Admit(0, "big", Guest{Weight: 1, Memory: 101}); !errors.Is(err, place.ErrNoGPU) || x.Check(101) == nil || x.Check(100) != nil {
		t.Errorf("a guest whose limit no GPU has: %v", err)
	}
	if err := x.Submit(0, Key{"nobody", 0, 1}, ask(1)); !errors.Is(err, ErrUnknownGuest) {
		t.Errorf("a guest that was not admitted: %v", err)
	}
	over := Key{"a", 0, 1}
	submit(t, x, 0, over, 101)
	pinned := Key{"a", 1, 1}
	submit(t, x, 0, pinned, 60)
	taken := []GPU{{Pinned: 50}, {Closed: true}}
	wantDecisions(t, "two", x.Decide(0, taken), Decision{Key: over, Code: abi.ErrorLimit}, Decision{Key: pinned, Reason: abi.WaitMemory})
	late := Key{"b", 0, 1} // asks when it is known what others have
	submit(t, x, 0, late, 60)
	wantDecisions(t, "another", x.Decide(0, taken), Decision{Key: late, Reason: abi.WaitMemory})
	x.Free(0, late)
	wantDecisions(t, "all closed", x.Decide(1, []GPU{{Closed: true}, {Closed: true}}), Decision{Key: pinned, Reason: abi.WaitGPU})
	wantDecisions(t, "opened", x.Decide(2, []GPU{{Pinned: 50}, {}}), Decision{Key: pinned, GPU: 1, Granted: 60, Waited: 2})
}

// TestGuarantees: a task goes only where its guest's guarantee is admitted.
func TestGuarantees(t *testing.T) {
	x := newTable(t, 2)
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 100, Guarantee: 0.5}); err != nil {
		t.Fatal(err)
	}
	k := Key{"a", 0, 1}
	submit(t, x, 0, k, 10)
	wantDecisions(t, "no room", x.Decide(0, []GPU{{PinnedGuarantee: 0.6}, {PinnedGuarantee: 0.6}}), Decision{Key: k, Reason: abi.WaitQueue})
	wantDecisions(t, "room", x.Decide(0, []GPU{{PinnedGuarantee: 0.6}, {PinnedGuarantee: 0.5}}), Decision{Key: k, GPU: 1, Granted: 10})
}

// TestAdoptAndUndo: a new daemon knows what the last one placed, and a decision that could not be
// saved is taken back.
func TestAdoptAndUndo(t *testing.T) {
	x := newTable(t, 1)
	open := make([]GPU, 1)
	old, next := Key{"a", 0, 7}, Key{"b", 0, 1}
	if err := x.Adopt(10, old, 70, ask(70), 0, 3, 0); err != nil {
		t.Fatal(err)
	}
	submit(t, x, 10, next, 40)
	wantDecisions(t, "the old one is there", x.Decide(11, open), Decision{Key: next, Reason: abi.WaitMemory})
	want := []Task{{Key: old, Request: ask(70), Placed: true, First: 70, Granted: 70, Asked: 7, Waited: 3}}
	if diff := cmp.Diff(want, x.Placed("a")); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	x.Free(12, old)
	placed := Decision{Key: next, Granted: 40, Waited: 2}
	wantDecisions(t, "placed", x.Decide(12, open), placed)
	x.Undo(13, next)
	if x.Granted(0) != 0 || x.Waits() != (Waits{}) {
		t.Errorf("undone, %d bytes are granted, waits are %+v", x.Granted(0), x.Waits())
	}
	placed.Waited = 3
	wantDecisions(t, "placed again", x.Decide(13, open), placed)
	if err := x.Adopt(13, Key{"a", 1, 1}, 70, ask(70), 0, 0, 0); err == nil {
		t.Error("more was adopted than the GPU has")
	}
}

// TestTableProperty has guests ask, end, die and change, and GPUs fill and close, in any order. No
// GPU's and no guest's memory is ever granted twice; each task is told each change once; and once
// nothing else is there, every task gets its GPU.
func TestTableProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus = 3
		specs := []place.Spec{{Memory: 100, SMs: 2, WarpsPerSM: 8, BlocksPerSM: 4}, {Memory: 60, SMs: 1, WarpsPerSM: 8, BlocksPerSM: 4}, {Memory: 100, SMs: 4, WarpsPerSM: 8, BlocksPerSM: 4}}
		placer := rapid.SampledFrom([]place.Placer{place.Warps{}, place.LeastBusy{}, place.Blocks{}}).Draw(t, "placer")
		x, err := New(specs, placer)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		taken := make([]GPU, gpus)
		limits := map[string]uint64{}
		names := []string{"a", "b", "c"}
		told := map[Key]Decision{} // of the tasks that are there
		generation := uint32(0)
		key := func(t *rapid.T) (Key, bool) {
			all := x.Tasks(now)
			if len(all) == 0 {
				return Key{}, false
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "task")].Key, true
		}
		decide := func(t *rapid.T) {
			before := map[int]uint64{}
			for i := range gpus {
				before[i] = x.Granted(i)
			}
			for _, d := range x.Decide(now, taken) {
				last, known := told[d.Key]
				if known && last.Granted > 0 || known && last == d {
					t.Fatalf("told %+v after %+v", d, last)
				}
				told[d.Key] = d
				if d.Code != 0 {
					delete(told, d.Key)
				}
			}
			for i := range gpus {
				switch n := x.Granted(i); {
				case n > before[i] && (taken[i].Closed || n+taken[i].Pinned > specs[i].Memory):
					t.Fatalf("GPU %d: %d of %d bytes granted beside %+v", i, n, specs[i].Memory, taken[i])
				case n > specs[i].Memory:
					t.Fatalf("GPU %d: %d of %d bytes granted", i, n, specs[i].Memory)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				name, limit := rapid.SampledFrom(names).Draw(t, "guest"), rapid.Uint64Range(1, 100).Draw(t, "limit")
				if err := x.Admit(now, name, Guest{Weight: rapid.Float64Range(0.1, 9).Draw(t, "weight"), Memory: limit}); err != nil {
					t.Fatal(err)
				}
				limits[name] = limit
			},
			"submit": func(t *rapid.T) {
				generation++
				k := Key{rapid.SampledFrom(names).Draw(t, "guest"), rapid.IntRange(0, 3).Draw(t, "slot"), generation}
				if err := x.Submit(now, k, ask(rapid.Uint64Range(1, 120).Draw(t, "memory"))); (err == nil) != (limits[k.Guest] > 0) {
					t.Fatal(err)
				}
			},
			"free": func(t *rapid.T) {
				if k, ok := key(t); ok {
					x.Free(now, k)
					delete(told, k)
				}
			},
			"undo": func(t *rapid.T) {
				if k, ok := key(t); ok && told[k].Granted > 0 {
					x.Undo(now, k)
					delete(told, k)
				}
			},
			"die": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "guest")
				x.Remove(now, name)
				delete(limits, name)
				for k := range told {
					if k.Guest == name {
						delete(told, k)
					}
				}
			},
			"take": func(t *rapid.T) {
				i := rapid.IntRange(0, gpus-1).Draw(t, "gpu")
				taken[i] = GPU{Pinned: rapid.Uint64Range(0, 150).Draw(t, "pinned"), Closed: rapid.Bool().Draw(t, "closed")}
			},
			"time":   func(t *rapid.T) { now += time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(t, "for")) },
			"decide": decide,
			"": func(t *rapid.T) {
				sums := map[string]uint64{}
				for _, k := range x.Tasks(now) {
					if k.Placed {
						sums[k.Key.Guest] += k.Request.Memory
					}
					if d := told[k.Key]; (d.Granted > 0) != k.Placed {
						t.Fatalf("%+v was told %+v", k, d)
					}
				}
				for name := range sums {
					if limits[name] == 0 {
						t.Fatalf("%s is gone and has %d bytes", name, sums[name])
					}
				}
			},
		})
		// Everything ends in time.
		clear(taken)
		for range 1000 {
			decide(t)
			all := x.Tasks(now)
			if len(all) == 0 {
				return
			}
			for _, k := range all {
				if k.Placed {
					x.Free(now, k.Key)
					delete(told, k.Key)
				}
			}
			now += time.Second
		}
		t.Fatalf("never placed: %+v", x.Tasks(now))
	})
}

// TestWhyGoesByOwnGPUs: why a task waits is a matter of the GPUs where its guest may go.
func TestWhyGoesByOwnGPUs(t *testing.T) {
	x := newTable(t, 2)
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 100, GPUs: place.Set(0).With(0)}); err != nil {
		t.Fatal(err)
	}
	k := Key{"a", 0, 1}
	submit(t, x, 1, k, 80)
	wantDecisions(t, "another guest has its GPU", x.Decide(1, []GPU{{Pinned: 50}, {}}), Decision{Key: k, Reason: abi.WaitMemory})
	wantDecisions(t, "its GPU is closed", x.Decide(2, []GPU{{Closed: true}, {}}), Decision{Key: k, Reason: abi.WaitGPU})
}

// TestRefusedAreBounded: a guest that asks again and again for what it never gets is answered once for
// each of its slots, and not at all once it is gone.
func TestRefusedAreBounded(t *testing.T) {
	x := newTable(t, 1)
	for i := range uint32(1000) {
		submit(t, x, 1, Key{"a", int(i % 2), i}, 101)
	}
	submit(t, x, 1, Key{"b", 0, 1}, 101)
	x.Remove(2, "b")
	wantDecisions(t, "refused", x.Decide(3, make([]GPU, 1)),
		Decision{Key: Key{"a", 0, 998}, Code: abi.ErrorLimit}, Decision{Key: Key{"a", 1, 999}, Code: abi.ErrorLimit})
}

// TestWholeLimit: a context that asks for its guest's whole limit, as it was when the guest was created,
// gets what the limit is by now.
func TestWholeLimit(t *testing.T) {
	x := newTable(t, 1)
	whole := ask(100)
	whole.Whole = true
	lower := func(memory uint64) {
		if err := x.Admit(1, "a", Guest{Weight: 1, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	lower(80)
	first, second := Key{"a", 0, 1}, Key{"a", 1, 1}
	for _, k := range []Key{first, second} {
		if err := x.Submit(1, k, whole); err != nil {
			t.Fatal(err)
		}
	}
	open := make([]GPU, 1)
	wantDecisions(t, "at 80 bytes", x.Decide(1, open), Decision{Key: first, Granted: 80}, Decision{Key: second, Reason: abi.WaitGuest})
	lower(60)
	x.Free(1, first)
	wantDecisions(t, "at 60 bytes", x.Decide(1, open), Decision{Key: second, Granted: 60})
}

// TestRaisedLimit: a context that asks for its guest's whole limit and waits, for a GPU or for another of
// its guest, gets what the limit is when it begins.
func TestRaisedLimit(t *testing.T) {
	x := newTable(t, 1)
	limit := func(memory uint64) {
		if err := x.Admit(1, "a", Guest{Weight: 1, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	limit(40)
	other, first, second := Key{"b", 0, 1}, Key{"a", 0, 1}, Key{"a", 1, 1}
	submit(t, x, 0, other, 70)
	open := make([]GPU, 1)
	wantDecisions(t, "another guest's", x.Decide(1, open), Decision{Key: other, Granted: 70, Waited: 1})
	whole := ask(40)
	whole.Whole = true
	for _, k := range []Key{first, second} {
		if err := x.Submit(1, k, whole); err != nil {
			t.Fatal(err)
		}
	}
	wantDecisions(t, "at 40 bytes", x.Decide(1, open), Decision{Key: first, Reason: abi.WaitMemory}, Decision{Key: second, Reason: abi.WaitGuest})
	limit(80)
	x.Free(2, other)
	wantDecisions(t, "at 80 bytes", x.Decide(2, open), Decision{Key: first, Granted: 80, Waited: 1})
	limit(90)
	x.Free(3, first)
	wantDecisions(t, "at 90 bytes", x.Decide(3, open), Decision{Key: second, Granted: 90, Waited: 2})
	limit(50)
	x.Free(4, second)
	third := Key{"a", 2, 1}
	submit(t, x, 4, other, 60)
	wantDecisions(t, "another guest's again", x.Decide(4, open), Decision{Key: other, Granted: 60})
	if err := x.Submit(4, third, whole); err != nil {
		t.Fatal(err)
	}
	limit(30)
	wantDecisions(t, "lowered while it waits", x.Decide(4, open), Decision{Key: third, Granted: 30})
}
