package executor

import (
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// promptContext has channels that know about when launches ran before they are asked
// for their outcomes.
type promptContext struct {
	*fakeContext
	asked func()
}

type promptChannel struct {
	*fakeChannel
	asked func()
}

func (c promptContext) NewChannel() (gpu.Channel, error) {
	return promptChannel{&fakeChannel{c: c.fakeContext}, c.asked}, nil
}

func (c promptChannel) Outcome(f gpu.Fence) gpu.Outcome {
	c.asked()
	return c.fakeChannel.Outcome(f)
}

// Glimpse knows nothing of every fourth.
func (c promptChannel) Glimpse(f gpu.Fence) (gpu.Outcome, bool) {
	return gpu.Outcome{Start: 12, End: 18}, f%4 != 0
}

// TestAnswersComeBeforeAccounts: where about when a launch ran is known at once, the
// guest is told that before its outcome is asked for, and charged by the outcome.
func TestAnswersComeBeforeAccounts(t *testing.T) {
	r := newFakeRig(t)
	var g *guestEnd
	early := 0
	r.x.o.Context = promptContext{r.ctx.(*fakeContext), func() {
		if n, err := g.com.Pending(); err != nil || n > 0 {
			early++
		}
	}}
	g = r.open()
	l := abi.Launch{Function: g.load("fake", "plain"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	const launches = 40
	for i := range uint64(launches) {
		g.send(abi.Header{Op: abi.OpLaunch, Cookie: i}, l, make([]byte, 8)...)
		com := g.receive(1)[0]
		want := [2]uint64{12, 18}
		if (i+1)%4 == 0 {
			want = [2]uint64{10, 20}
		}
		if com.Status != abi.StatusOK || com.Start != want[0] || com.End != want[1] {
			t.Errorf("launch %d: %+v, want times %v", i, com, want)
		}
	}
	if early != launches*3/4 {
		t.Errorf("%d of %d were answered before their outcomes were asked for", early, launches)
	}
	c := r.page.Context(0).Counters()
	if c.Kernels != launches || c.GPUTime != launches*10*time.Nanosecond || r.x.launches != 0 || r.x.predicted != 0 {
		t.Errorf("%+v, %d launches of %v on the GPU", c, r.x.launches, r.x.predicted)
	}
}
