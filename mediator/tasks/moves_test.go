package tasks

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare/place"
	"vgpud/mediator/vgpu/abi"
)

// An idle task leaves for one that waits, comes back when it has something to do, and is told so.
func TestIdleTaskLeavesAndReturns(t *testing.T) {
	x := newTable(t, 1)
	open := make([]GPU, 1)
	a, b := Key{"a", 0, 1}, Key{"b", 0, 1}
	submit(t, x, 0, a, 80)
	wantDecisions(t, "a", x.Decide(0, open), Decision{Key: a, Granted: 80})
	submit(t, x, time.Second, b, 50)
	x.SetQuiet(time.Second, a, true)
	wantDecisions(t, "b waits", x.Decide(time.Second, open), Decision{Key: b, Reason: abi.WaitMemory})
	at, ok := x.Next(time.Second)
	if !ok || at != 11*time.Second {
		t.Fatalf("next at %v, %v", at, ok)
	}
	wantDecisions(t, "a leaves", x.Decide(at, open), Decision{Key: a, Leave: true, Why: place.IsIdle})
	if all := x.Tasks(at); all[0].State != place.Leaving || all[0].Why != place.IsIdle || !all[0].Placed {
		t.Errorf("a is %+v", all[0])
	}
	if _, ok := x.Left(at, a, 1, 30, false); ok {
		t.Error("a goes on at once")
	}
	wantDecisions(t, "b", x.Decide(at, open), Decision{Key: b, Granted: 50, Waited: 10 * time.Second})
	if all := x.Tasks(at); all[0].State != place.Parked || all[0].Placed || all[0].OnHost != 30 || x.Moves()[place.IsIdle] != 1 {
		t.Errorf("a is %+v, moves %v", all[0], x.Moves())
	}
	x.Wants(at, a)
	wantDecisions(t, "a wants", x.Decide(at, open), Decision{Key: a, Reason: abi.WaitMemory})
	x.Free(at+1, b)
	back := Decision{Key: a, Granted: 80, Left: 1}
	wantDecisions(t, "a is back", x.Decide(at+1, open), back)
	x.Began(&back)
	if _, ok := x.Left(at+1, a, 1, 30, false); ok || x.Granted(0) != 80 {
		t.Error("what was said before counts again")
	}
	if w := x.Waits(); w.Count != 0 {
		t.Errorf("waits of tasks that came back are counted: %+v", w)
	}
}

// A task that can't leave stays where it is, and so does one for which the host has no room.
func TestTasksStay(t *testing.T) {
	x := newTable(t, 1)
	open := make([]GPU, 1)
	if err := x.Admit(0, "b", Guest{Weight: 1, Memory: 100, OnHost: 40}); err != nil {
		t.Fatal(err)
	}
	a, b, c := Key{"a", 0, 1}, Key{"b", 0, 1}, Key{"a", 1, 1}
	submit(t, x, 0, a, 40)
	submit(t, x, 0, b, 50)
	x.Decide(0, open)
	submit(t, x, 0, c, 60)
	x.Decide(0, open)
	x.SetQuiet(0, a, true)
	x.SetQuiet(0, b, true)
	at := 10 * time.Second
	wantDecisions(t, "the host has no room for b's", x.Decide(at, open))
	wantDecisions(t, "nor is a's enough", x.Decide(at+1, open))
	if err := x.Admit(at, "b", Guest{Weight: 1, Memory: 100}); err != nil {
		t.Fatal(err)
	}
	at += 30 * time.Second
	wantDecisions(t, "there is room", x.Decide(at, open), Decision{Key: b, Leave: true, Why: place.IsIdle})
	x.Stayed(at, b)
	if all := x.Tasks(at); all[1].State != place.Placed || all[1].Why != place.NoReason {
		t.Errorf("b is %+v", all[1])
	}
	if x.Stayed(at, b); x.Granted(0) != 90 || len(x.Moves()) != 0 {
		t.Errorf("%d bytes are granted, moves %v", x.Granted(0), x.Moves())
	}
}

// A limit that was lowered takes nothing from a task that leaves and comes back.
func TestLoweredLimitAndMoves(t *testing.T) {
	x := newTable(t, 1)
	open := make([]GPU, 1)
	a := Key{"a", 0, 1}
	submit(t, x, 0, a, 80)
	x.Decide(0, open)
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 40}); err != nil {
		t.Fatal(err)
	}
	x.Left(0, a, 1, 10, true)
	wantDecisions(t, "it is back", x.Decide(0, open), Decision{Key: a, Granted: 80, Left: 1})
}

// A task whose guest never lets it go, with a kernel that does not end, keeps neither the memory that it
// was to move to nor an urgent guest that waits: that one gets another's. It may leave later all the same.
func TestTaskThatNeverLeaves(t *testing.T) {
	open := make([]GPU, 1)
	a, b, c := Key{"a", 0, 1}, Key{"b", 0, 1}, Key{"c", 0, 1}
	x := newTable(t, 1)
	if err := x.Admit(0, "c", Guest{Weight: 1, Memory: 100, Urgent: true}); err != nil {
		t.Fatal(err)
	}
	submit(t, x, 0, a, 50)
	submit(t, x, 0, b, 40)
	x.Decide(0, open)
	submit(t, x, 0, c, 30)
	wantDecisions(t, "the largest is to leave", x.Decide(0, open),
		Decision{Key: a, Leave: true, Why: place.ForUrgent}, Decision{Key: c, Reason: abi.WaitMemory})
	at := leaveLimit - 1
	wantDecisions(t, "it may take its time", x.Decide(at, open))
	at++
	wantDecisions(t, "another is to leave", x.Decide(at, open), Decision{Key: b, Leave: true, Why: place.ForUrgent})
	x.Left(at, b, 1, 10, true)
	wantDecisions(t, "it begins", x.Decide(at, open),
		Decision{Key: c, Granted: 30, Waited: at}, Decision{Key: b, Reason: abi.WaitMemory})
	if x.Left(at, a, 1, 10, true); x.Granted(0) != 30 {
		t.Errorf("%d bytes are granted once it has left", x.Granted(0))
	}
}

// A task gets more memory where it is if there is room, a part of it in advance; moves where another
// GPU has as much; and is refused what its guest may not have.
func TestTasksGrow(t *testing.T) {
	x := newTable(t, 2)
	open := make([]GPU, 2)
	a, b := Key{"a", 0, 1}, Key{"b", 0, 1}
	submit(t, x, 0, a, 40)
	submit(t, x, 0, b, 40)
	x.Decide(0, open)
	if d, ok := x.Grow(0, a, 50, open); !ok || d != (Decision{Key: a, Granted: 55, Want: 50, Before: 40}) {
		t.Errorf("grows by %+v, %v", d, ok)
	}
	if d, ok := x.Grow(0, a, 101, open); !ok || d.Granted != 55 || d.Want != 101 {
		t.Errorf("more than its guest may have: %+v, %v", d, ok)
	}
	// Memory that others are promised there is not to be had, but elsewhere.
	if d, ok := x.Grow(0, a, 90, []GPU{{Pinned: 30}, {}}); ok {
		t.Fatalf("grows at once by %+v", d)
	}
	x.Free(0, b)
	wantDecisions(t, "it moves", x.Decide(0, []GPU{{Pinned: 30}, {}}), Decision{Key: a, Leave: true, Why: place.Growth})
	if x.Granted(0) != 55 || x.Granted(1) != 90 {
		t.Errorf("while it moves %d and %d bytes are granted", x.Granted(0), x.Granted(1))
	}
	for gpu, want := range []uint64{55, 90} {
		if n, memory := x.On("a", gpu); n != 1 || memory != want {
			t.Errorf("while it moves %d contexts have %d bytes of GPU %d, want %d", n, memory, gpu, want)
		}
	}
	d, ok := x.Left(1, a, 1, 20, true)
	if !ok || d != (Decision{Key: a, GPU: 1, Granted: 90, Left: 1, Want: 90}) {
		t.Errorf("it goes on with %+v, %v", d, ok)
	}
	if x.Granted(0) != 0 || x.Moves()[place.Growth] != 1 {
		t.Errorf("%d bytes are left where it was, moves %v", x.Granted(0), x.Moves())
	}
	// A grant that can't be saved is taken back.
	d, ok = x.Grow(1, a, 95, open)
	if x.Shrink(1, a, d.Before); !ok || x.Granted(1) != 90 || x.Placed("a")[0].Granted != 90 {
		t.Errorf("%d bytes are granted after %+v", x.Granted(1), d)
	}
}

// The driver's own memory for a context counts on the GPU, and not for the guest's limit.
func TestDriversOwnMemory(t *testing.T) {
	x := newTable(t, 1)
	open := make([]GPU, 1)
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 80, Own: 15}); err != nil {
		t.Fatal(err)
	}
	a, b, c := Key{"a", 0, 1}, Key{"a", 1, 1}, Key{"b", 0, 1}
	submit(t, x, 0, a, 60)
	submit(t, x, 0, b, 20)
	submit(t, x, 0, c, 10)
	wantDecisions(t, "75 and 10 of 100", x.Decide(0, open),
		Decision{Key: a, Granted: 60}, Decision{Key: c, Granted: 10}, Decision{Key: b, Reason: abi.WaitMemory})
	if n, memory := x.On("a", 0); n != 1 || memory != 75 || x.Granted(0) != 85 {
		t.Errorf("a has %d bytes in %d contexts, %d are granted", memory, n, x.Granted(0))
	}
	x.Free(0, a)
	x.Free(0, b)
	// One that asks for all that its guest may have gets what a GPU has for it.
	if err := x.Admit(0, "a", Guest{Weight: 1, Memory: 100, Own: 15}); err != nil {
		t.Fatal(err)
	}
	x.Free(0, c)
	all := ask(100)
	all.Whole = true
	if err := x.Submit(0, a, all); err != nil {
		t.Fatal(err)
	}
	wantDecisions(t, "all", x.Decide(0, open), Decision{Key: a, Granted: 85})
	// A context that was placed before this memory counted keeps its own.
	y := newTable(t, 1)
	if err := y.Admit(0, "a", Guest{Weight: 1, Memory: 100, Own: 15}); err != nil {
		t.Fatal(err)
	}
	if err := y.Adopt(0, a, 100, ask(100), 0, 0, 0); err != nil || y.Granted(0) != 100 {
		t.Errorf("%d bytes are granted: %v", y.Granted(0), err)
	}
}

// A task that had left its GPU when its daemon ended asks for what it had, not for what it asked for at
// first: with less it can't go on.
func TestTaskThatLeftAsksForWhatItHad(t *testing.T) {
	a, b := Key{"a", 0, 1}, Key{"a", 1, 1}
	returns := func(x *Table, k Key, r Request, away Away) {
		t.Helper()
		away.OnHost, away.Wants = 10, true
		if err := x.Return(0, k, r, away); err != nil {
			t.Fatal(err)
		}
	}
	whole := ask(20)
	whole.Whole = true
	for name, c := range map[string]struct {
		r       Request
		first   uint64
		away    Away
		lowered uint64
		want    uint64
	}{
		"it had grown":               {r: ask(20), first: 20, away: Away{Times: 3, Had: 50}, want: 50},
		"it had less than all":       {r: whole, first: 100, away: Away{Times: 3, Had: 30}, want: 30},
		"what it had is not known":   {r: ask(20), first: 20, away: Away{Times: 3}, want: 20},
		"only what was saved is":     {r: ask(20), first: 20, away: Away{Times: 3, Saved: 50}, want: 50},
		"a lowered limit":            {r: ask(20), first: 20, away: Away{Times: 3, Had: 50, Saved: 50}, lowered: 30, want: 50},
		"one below its request":      {r: ask(40), first: 40, away: Away{Times: 3, Had: 40, Saved: 40}, lowered: 30, want: 40},
		"all of a lowered limit":     {r: whole, first: 30, away: Away{Times: 3, Had: 100, Saved: 100}, lowered: 30, want: 100},
		"a lie":                      {r: ask(20), first: 20, away: Away{Times: 3, Had: 1 << 63}, want: 100},
		"a lie about what it had":    {r: ask(20), first: 20, away: Away{Times: 3, Had: 1 << 63, Saved: 50}, lowered: 30, want: 50},
		"it says less than it had":   {r: ask(20), first: 20, away: Away{Times: 3, Had: 40, Saved: 50}, want: 40},
		"it says that it never left": {r: ask(20), first: 20, away: Away{Had: 50}, want: 50},
	} {
		x := newTable(t, 1)
		if c.lowered > 0 {
			if err := x.Admit(0, "a", Guest{Weight: 1, Memory: c.lowered}); err != nil {
				t.Fatal(err)
			}
		}
		returns(x, a, c.r, c.away)
		if all := x.Tasks(0); len(all) != 1 || all[0].First != c.first || all[0].Request.Memory != c.want || all[0].OnHost != 10 {
			t.Errorf("%s: %+v", name, all)
		}
		if all := x.Away("a"); len(all) != 1 || all[0].Key != a {
			t.Errorf("%s: away are %+v", name, all)
		}
		placed := Decision{Key: a, Granted: c.want, Left: max(c.away.Times, 1)}
		wantDecisions(t, name, x.Decide(0, make([]GPU, 1)), placed)
		if all := x.Away("a"); len(all) != 0 {
			t.Errorf("%s: away are %+v", name, all)
		}
		x.Undo(0, a)
		wantDecisions(t, name+", and its grant could not be saved", x.Decide(0, make([]GPU, 1)), placed)
	}
	// One that finds no room beside its guest's others waits for them, with all that it had.
	x := newTable(t, 2)
	open := make([]GPU, 2)
	submit(t, x, 0, a, 60)
	returns(x, b, ask(20), Away{Times: 1, Had: 70})
	wantDecisions(t, "one waits for the other", x.Decide(0, open), Decision{Key: a, Granted: 60}, Decision{Key: b, Reason: abi.WaitGuest})
	x.Free(0, a)
	wantDecisions(t, "the other has ended", x.Decide(0, open), Decision{Key: b, Granted: 70, Left: 1})
	if all := x.Tasks(0); all[0].First != 20 {
		t.Errorf("%+v", all)
	}
	// One that has nothing to do wants no GPU.
	x = newTable(t, 1)
	if err := x.Return(0, a, ask(20), Away{Times: 1, Had: 50}); err != nil {
		t.Fatal(err)
	}
	wantDecisions(t, "nothing to do", x.Decide(0, make([]GPU, 1)))
	x.Wants(0, a)
	wantDecisions(t, "something to do", x.Decide(0, make([]GPU, 1)), Decision{Key: a, Granted: 50, Left: 1})
}

// contextModel is what a guest's process knows of a context.
type contextModel struct {
	onGPU   bool
	gpu     int
	granted uint64
	leave   bool // it was told to, at told
	told    time.Duration
	left    uint32
	want    uint64
	stays   bool   // it can't leave
	had     uint64 // bytes that it had when it left, which it needs again
}

// TestMovesProperty: contexts grow, idle, leave, stay and end in any order, and daemons miss what they
// say for a while; limits are changed, and decisions can't be saved. A context gets again what it had
// when it left its GPU. No GPU's memory is ever in use by more than it has, as the guests' processes
// know it; and once nobody asks for more, every growth is answered and every context that wants a GPU
// gets one, if those that have one end at last.
func TestMovesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus = 2
		specs := []place.Spec{{Memory: 100, SMs: 2, WarpsPerSM: 8}, {Memory: 70, SMs: 2, WarpsPerSM: 8}}
		x, err := New(specs, place.Warps{})
		if err != nil {
			t.Fatal(err)
		}
		own := rapid.SampledFrom([]uint64{0, 5}).Draw(t, "own")
		now := time.Duration(0)
		guests := map[string]*Guest{}
		admit := func(name string, memory uint64) {
			guests[name].Memory = memory
			if err := x.Admit(now, name, *guests[name]); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b"} {
			guests[name] = &Guest{Weight: 1, Own: own, Urgent: name == "b" && rapid.Bool().Draw(t, "urgent"), OnHost: rapid.SampledFrom([]uint64{0, 60}).Draw(t, "on host")}
			admit(name, 90)
		}
		open := make([]GPU, gpus)
		model := map[Key]*contextModel{}
		slot := 0
		// hear has a guest's process hear a decision.
		hear := func(d Decision) {
			m := model[d.Key]
			switch {
			case m == nil:
				t.Fatalf("a decision about a context that is gone: %+v", d)
			case d.Leave:
				m.leave, m.told = true, now
			case d.Code != 0 && m.left > 0, d.Granted > 0 && d.Granted < m.had:
				t.Fatalf("a context had %d bytes and left %d times: %+v", m.had, m.left, d)
			case d.Code != 0:
				delete(model, d.Key)
			case d.Granted > 0 && d.Left == m.left:
				if m.onGPU && d.Before == 0 {
					t.Fatalf("it is placed twice: %+v", d)
				}
				if d.Want == m.want {
					m.want = 0
				}
				m.onGPU, m.gpu, m.granted = true, d.GPU, d.Granted
			case d.Granted > 0:
				t.Fatalf("a decision of before it left %d times: %+v", m.left, d)
			}
		}
		unsaved := false // decisions can't be saved
		decide := func() int {
			ds := x.Decide(now, open)
			again := false
			for _, d := range ds {
				if unsaved && d.Granted > 0 && d.Before == 0 {
					x.Undo(now, d.Key)
					again = true
					continue
				}
				hear(d)
			}
			if again {
				for _, d := range x.Decide(now, []GPU{{Closed: true}, {Closed: true}}) {
					hear(d)
				}
			}
			return len(ds)
		}
		leave := func(k Key, m *contextModel, wants bool) {
			m.leave = false
			if m.stays {
				x.Stayed(now, k)
				if m.want > 0 { // it may have been asked for in vain meanwhile
					if d, ok := x.Grow(now, k, m.want, open); ok {
						hear(d)
					}
				}
				return
			}
			m.left++
			m.had = m.granted
			m.onGPU, m.granted, m.want = false, 0, 0
			if d, ok := x.Left(now, k, m.left, 10, wants || m.want > 0); ok {
				hear(d)
			}
		}
		keys := func() (ks []Key) {
			for _, task := range x.Tasks(now) {
				ks = append(ks, task.Key)
			}
			return ks
		}
		pick := func(of func(*contextModel) bool) (Key, *contextModel, bool) {
			ks := slices.DeleteFunc(keys(), func(k Key) bool { return !of(model[k]) })
			if len(ks) == 0 {
				return Key{}, nil, false
			}
			k := rapid.SampledFrom(ks).Draw(t, "context")
			return k, model[k], true
		}
		check := func(t *rapid.T) {
			var sum [gpus]uint64
			for _, m := range model {
				if m.onGPU {
					sum[m.gpu] += m.granted + own
				}
			}
			for i, n := range sum {
				if n > specs[i].Memory || n > x.Granted(i) {
					t.Fatalf("contexts have %d bytes of GPU %d, which has %d and granted %d", n, i, specs[i].Memory, x.Granted(i))
				}
			}
			for _, task := range x.Tasks(now) {
				m := model[task.Key]
				leaves := task.State == place.Leaving || task.State == place.Moving
				if m == nil || task.Placed != m.onGPU || leaves && !m.leave || !leaves && m.leave && now-m.told < leaveLimit {
					t.Fatalf("a context is %+v, the guest's process has %+v", task, m)
				}
			}
			if len(keys()) != len(model) {
				t.Fatalf("the table has %d contexts, there are %d", len(keys()), len(model))
			}
		}
		submit := func() {
			slot++
			k := Key{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "guest"), slot, 1}
			if err := x.Submit(now, k, ask(rapid.Uint64Range(10, 90).Draw(t, "memory"))); err != nil {
				t.Fatal(err)
			}
			model[k] = &contextModel{stays: rapid.IntRange(0, 3).Draw(t, "stays") == 0}
		}
		actions := []func(){
			submit, submit,
			func() { now += time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second },
			func() {
				if k, _, ok := pick(func(m *contextModel) bool { return m.onGPU }); ok {
					x.SetQuiet(now, k, rapid.IntRange(0, 3).Draw(t, "busy") > 0)
				}
			},
			func() {
				k, m, ok := pick(func(m *contextModel) bool { return m.onGPU && m.want == 0 })
				if !ok {
					return
				}
				m.want = rapid.Uint64Range(10, 100).Draw(t, "memory")
				if d, ok := x.Grow(now, k, m.want, open); ok {
					hear(d)
				}
			},
			func() {
				if k, m, ok := pick(func(m *contextModel) bool { return m.leave }); ok {
					leave(k, m, rapid.Bool().Draw(t, "wants"))
				}
			},
			func() {
				if rapid.IntRange(0, 9).Draw(t, "unasked") > 0 {
					return
				}
				if k, m, ok := pick(func(m *contextModel) bool { return m.onGPU && !m.leave && !m.stays }); ok {
					leave(k, m, true)
				}
			},
			func() {
				if k, _, ok := pick(func(m *contextModel) bool { return !m.onGPU }); ok {
					x.Wants(now, k)
				}
			},
			func() {
				if k, _, ok := pick(func(*contextModel) bool { return true }); ok && len(model) > 4 {
					x.Free(now, k)
					delete(model, k)
				}
			},
			func() {
				admit(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "guest"), rapid.Uint64Range(10, 90).Draw(t, "limit"))
			},
			func() { unsaved = rapid.IntRange(0, 3).Draw(t, "unsaved") == 0 },
			func() { // an earlier daemon had placed it
				slot++
				k := Key{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "guest"), slot, 1}
				had := rapid.Uint64Range(10, 90).Draw(t, "had")
				away := Away{Times: 1, OnHost: 10, Had: had, Saved: had, Wants: true}
				if err := x.Return(now, k, ask(rapid.Uint64Range(10, 90).Draw(t, "memory")), away); err != nil {
					t.Fatal(err)
				}
				model[k] = &contextModel{stays: rapid.IntRange(0, 3).Draw(t, "stays") == 0, left: 1, had: had}
			},
			func() {
				if rapid.IntRange(0, 9).Draw(t, "shut") == 0 {
					open[rapid.IntRange(0, gpus-1).Draw(t, "gpu")].Closed = rapid.Bool().Draw(t, "closed")
				}
			},
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			rapid.SampledFrom(actions).Draw(t, "action")()
			decide()
			check(t)
		}
		unsaved = false
		// Each context wants its GPU, and ends once it has it and waits for nothing.
		clear(open)
		for steps := 0; len(model) > 0; steps++ {
			if steps > 2_000 {
				t.Fatalf("contexts wait for ever: %+v", x.Tasks(now))
			}
			acted := decide() > 0
			check(t)
			for _, k := range keys() {
				m := model[k]
				if m.leave {
					leave(k, m, true)
					acted = true
				} else if !m.onGPU {
					x.Wants(now, k)
				}
			}
			if acted {
				continue
			}
			for _, k := range keys() {
				if m := model[k]; m.onGPU && m.want == 0 {
					x.Free(now, k)
					delete(model, k)
					acted = true
					break
				}
			}
			if !acted {
				at, ok := x.Next(now)
				now = max(now+time.Second, at)
				if !ok {
					now += 10 * time.Second
				}
			}
		}
	})
}
