package executor

import (
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// A fill is a command that the GPU carries out by kernels of its driver: it sets, zeroes, or copies
// memory within the GPU. Like a launch it takes the compute engine's time, can't be taken back by a
// suspension, and is charged. So its amount on the GPU is limited, too. Its time is estimated from
// its bytes.
const (
	// longFills is how many long fills a context may have on the GPU.
	longFills = 2
	// fillRate is what the slowest shared GPUs write, in bytes per nanosecond. An H100 is ten times
	// as fast.
	fillRate = 256
	// minFill is the time of the shortest fill. fillRow is what a row counts for at least, in
	// bytes: rows that lie apart are written one by one.
	minFill = 2 * time.Microsecond
	fillRow = 512
	// maxFill is more bytes than any GPU has, and keeps products from overflowing.
	maxFill = 1 << 50
)

// fillTime estimates how long a fill of rows of so many bytes takes at most.
func fillTime(bytes, rows uint64) time.Duration {
	if bytes = max(bytes, fillRow); rows > maxFill/bytes {
		return maxFill / fillRate
	}
	return minFill + time.Duration(bytes*rows/fillRate)
}

// fillFits reports whether a fill of expected time d may go to the GPU, and whether it counts as
// short: short fills are bounded by their total time. There may be as many long fills as launches,
// beside the launches, so that neither keeps the other away for ever. Where launches wait for their
// turns, there is one long fill at a time, since a fill has no turn.
func (x *Executor) fillFits(d time.Duration) (may, brief bool) {
	long := x.fills - x.brief
	switch {
	case x.filling+d <= x.o.FetchLimit.Work:
		return true, true
	case x.o.Page.Mode() != ipc.ModeFree:
		return long == 0, false
	default:
		return long < x.maxLongFills(), false
	}
}

// maxLongFills returns how many long fills the context may have on the GPU. The guest's contexts
// share the limit, and each may have one. If a suspension takes fills back they share none.
func (x *Executor) maxLongFills() int {
	if !x.bounded() {
		return x.o.FetchLimit.Launches
	}
	contexts := 0
	for i := range ipc.MaxContexts {
		if x.o.Page.Context(i).OnGPU() {
			contexts++
		}
	}
	if contexts > 1 {
		return 1
	}
	return longFills
}

// fill calls put to put a fill of expected time d on the GPU, unless the fill has to wait.
func (c *command) fill(p *pending, d time.Duration, put func() (gpu.Fence, error)) error {
	may, brief := c.ch.x.fillFits(d)
	if !may {
		return errWaits
	}
	if err := p.onGPU(put()); err != nil {
		return err
	}
	p.fill, p.brief = d, brief
	c.ch.x.countFills(1, d, brief)
	c.ch.x.began(&c.ch.onGPU)
	return nil
}

// countFills counts n more fills of expected time d on the GPU; n is 1 or -1.
func (x *Executor) countFills(n int, d time.Duration, brief bool) {
	if brief {
		x.brief += n
		x.filling += time.Duration(n) * d
	}
	x.fills += n
	x.slot.SetFilling(x.fills > 0)
}

// accountFill accounts for a fill that has ended.
func (x *Executor) accountFill(on *ongoing, d time.Duration, brief bool, out gpu.Outcome) {
	x.ended(on, out)
	x.countFills(-1, d, brief)
	x.slot.AddFilled(x.gpuTime(out.Start, out.End))
}
