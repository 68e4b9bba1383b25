package executor

import (
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// TestWorkIsLogged: the page says since when there is work on the GPU and, in the end, when there
// was, of launches of all kinds and of fills, if work logs are wanted.
func TestWorkIsLogged(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		r := newRigOn(t, slowGPU, gpu.ContextOptions{})
		r.page.SetWorkLogWanted(wanted)
		work := r.page.WorkLog(0)
		a, b := r.open(), r.open()
		fn := a.load(spinPTX, "spin")
		mem := a.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 16}).Value[0]
		before, err := r.x.o.Device.Now()
		if err != nil {
			t.Fatal(err)
		}
		a.spin(fn, 1, 3_000)
		b.spin(fn, 1, 3_000)
		var host clock.Sim // so that it is known for how long commands are under way
		host.Advance(r.x.o.Clock.Now())
		r.x.o.Clock = &host
		r.x.Step(false)
		host.Advance(time.Minute)
		since := work.Since()
		if (since != 0) != wanted || wanted && since < before {
			t.Errorf("wanted %v: work since %v, launched after %v", wanted, since, before)
		}
		done := []abi.Completion{a.receive(1)[0], b.receive(1)[0], a.must(abi.OpSet, abi.Set{Dst: mem, Width: 1, Count: 1 << 16, Rows: 1})}
		begun, ended := time.Duration(min(done[0].Start, done[1].Start)), time.Duration(done[2].End)
		var told [2]time.Duration
		work.ReadAll(func(start, end time.Duration) {
			if told[0] == 0 || start < told[0] {
				told[0] = start
			}
			told[1] = max(told[1], end)
		})
		// A launch may start on the GPU before its call returns.
		if wanted && (told[0] != begun || told[1] != ended) || !wanted && told[1] != 0 {
			t.Errorf("wanted %v: told of work from %v to %v, want %v to %v", wanted, told[0], told[1], begun, ended)
		}
		if s := work.Since(); s != 0 {
			t.Errorf("wanted %v: something is on the GPU since %v", wanted, s)
		}
		now, slot := host.Now(), r.page.Context(0)
		if worked := slot.Worked(now); worked != time.Minute || worked != slot.Worked(now+time.Hour) {
			t.Errorf("commands were under way for %v, and by now for %v, want a minute", worked, slot.Worked(now+time.Hour))
		}
	}
}

// TestWorkOfTwoChannels: while one channel goes on, the other's end does not change since when
// there is work.
func TestWorkOfTwoChannels(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.page.SetWorkLogWanted(true)
	work := r.page.WorkLog(0)
	a, b := r.open(), r.open()
	fn := a.load(spinPTX, "spin")
	a.spin(fn, 1, 20_000)
	r.x.Step(false)
	since := work.Since()
	b.spin(fn, 1, 10)
	r.x.Step(false)
	end := time.Duration(b.receive(1)[0].End)
	if got := work.Since(); r.x.launches == 1 && got != since {
		t.Errorf("since %v, then %v, and the other channel's launch ended at %v", since, got, end)
	}
	a.receive(1)
	if work.Since() != 0 {
		t.Errorf("something is on the GPU since %v", work.Since())
	}
}
