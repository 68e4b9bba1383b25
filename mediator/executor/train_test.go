package executor

import (
	"fmt"
	"slices"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// trainContext is a context whose channels can tell of several commands at once, and record which
// were said to be followed.
type trainContext struct {
	*fakeContext
	followed *[]bool
}

type trainChannel struct {
	*fakeChannel
	followed *[]bool
}

func (c trainContext) NewChannel() (gpu.Channel, error) {
	return &trainChannel{&fakeChannel{c: c.fakeContext}, c.followed}, nil
}

func (c *trainChannel) Ahead(followed bool) { *c.followed = append(*c.followed, followed) }

// TestTrains checks which commands are told of with the ones behind them.
func TestTrains(t *testing.T) {
	many := slices.Repeat([]string{"launch"}, maxTrain+2)
	whole := append(slices.Repeat([]bool{true}, maxTrain-1), false, true, false)
	for _, c := range []struct {
		commands []string
		want     []bool
	}{
		{[]string{"launch"}, []bool{false}},
		{[]string{"launch", "launch", "launch"}, []bool{true, true, false}},
		{[]string{"in", "launch", "out"}, []bool{true, true, false}},
		{[]string{"launch", "record", "launch"}, []bool{false, false}},
		{[]string{"launch", "long out", "launch"}, []bool{true, false, false}},
		{[]string{"unknown", "launch"}, []bool{false, false}},
		{[]string{"launch", "alloc", "out"}, []bool{false, false}},
		{many, whole},
	} {
		t.Run(fmt.Sprint(c.commands[:min(3, len(c.commands))]), func(t *testing.T) {
			r := newFakeRig(t)
			var followed []bool
			r.x.o.Context = trainContext{r.ctx.(*fakeContext), &followed}
			r.x.o.FetchLimit = DeepFetchLimit
			g := r.open()
			launch := func(function uint64) {
				l := abi.Launch{Function: function, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
				g.send(abi.Header{Op: abi.OpLaunch}, l, make([]byte, 8)...)
			}
			known, unknown := g.load("fake", "plain"), g.load("fake", "other")
			mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4 * trainCopy}).Value[0]
			event := g.must(abi.OpEventCreate, abi.Empty{}).Value[0]
			launch(known) // from now on it is known how long it takes
			g.receive(1)
			followed = nil
			for _, what := range c.commands {
				switch what {
				case "launch":
					launch(known)
				case "unknown":
					launch(unknown)
				case "in":
					g.send(abi.Header{Op: abi.OpCopyIn}, abi.Transfer{Dst: mem, Src: staging, Size: 64})
				case "out":
					g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: 64})
				case "long out":
					g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: trainCopy + 1})
				case "record":
					g.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: event})
				case "alloc":
					g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 256})
				}
			}
			g.receive(len(c.commands))
			if !slices.Equal(followed, c.want) {
				t.Errorf("followed: %v, want %v", followed, c.want)
			}
		})
	}
}
