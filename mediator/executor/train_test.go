package executor

import (
	"fmt"
	"slices"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// trainContext is a context whose channels can tell of several commands at once, and record how the
// ends of commands are told: "joins" for one that joins the next, "told" for one that is told of by
// itself or with those that joined it, and "asked" for the first call of Done behind one that joins.
type trainContext struct {
	*fakeContext
	trains *[]string
}

type trainChannel struct {
	*fakeChannel
	trains *[]string
}

func (c trainContext) NewChannel() (gpu.Channel, error) {
	return &trainChannel{&fakeChannel{c: c.fakeContext}, c.trains}, nil
}

func (c *trainChannel) Ahead(joins bool) {
	what := "told"
	if joins {
		what = "joins"
	}
	*c.trains = append(*c.trains, what)
}

func (c *trainChannel) Done() gpu.Fence {
	if n := len(*c.trains); n > 0 && (*c.trains)[n-1] == "joins" {
		*c.trains = append(*c.trains, "asked")
	}
	return c.fakeChannel.Done()
}

// TestTrains checks which commands are told of with the ones behind them, and that the GPU is asked
// to tell of a train before anything else than a short command, and where the guest has sent no more.
func TestTrains(t *testing.T) {
	many := slices.Repeat([]string{"launch"}, maxTrain+2)
	whole := append(slices.Repeat([]string{"joins"}, maxTrain-1), "told", "joins", "joins", "asked")
	for _, c := range []struct{ commands, want []string }{
		{[]string{"launch"}, []string{"joins", "asked"}},
		{[]string{"launch", "launch", "launch"}, []string{"joins", "joins", "joins", "asked"}},
		{[]string{"in", "launch", "out"}, []string{"joins", "joins", "joins", "asked"}},
		{[]string{"launch", "record", "launch"}, []string{"joins", "asked", "joins", "asked"}},
		{[]string{"launch", "long out", "launch"}, []string{"joins", "told", "joins", "asked"}},
		{[]string{"unknown", "launch"}, []string{"told", "joins", "asked"}},
		{[]string{"launch", "alloc", "out"}, []string{"joins", "asked", "joins", "asked"}},
		{many, whole},
	} {
		t.Run(fmt.Sprint(c.commands[:min(3, len(c.commands))]), func(t *testing.T) {
			r := newFakeRig(t)
			var trains []string
			r.x.o.Context = trainContext{r.ctx.(*fakeContext), &trains}
			r.x.o.FetchLimit = DeepFetchLimit
			g := r.open()
			launch := func(function uint64) {
				l := abi.Launch{Function: function, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8, Data: staging}
				g.send(abi.Header{Op: abi.OpLaunch}, l) // one entry, so that a train's fit into the ring
			}
			known, unknown := g.load("fake", "plain"), g.load("fake", "other")
			mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 4 * trainCopy}).Value[0]
			event := g.must(abi.OpEventCreate, abi.Empty{}).Value[0]
			launch(known) // from now on it is known how long it takes
			g.receive(1)
			trains = nil
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
			if !slices.Equal(trains, c.want) {
				t.Errorf("%v, want %v", trains, c.want)
			}
		})
	}
}
