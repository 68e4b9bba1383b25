package executor

import (
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// A fill is a command that the GPU carries out by kernels of its driver's: memory is set,
// copied within the GPU, or zeroed. It takes the compute engine's time as a launch does,
// can't be taken back by a suspension either, and is charged alike; so no more of it may
// be on the GPU ahead of time. How long it takes goes by its bytes.
const (
	// aheadFills is how many that take long a context may have on the GPU.
	longFills = 2
	// fillRate is what the slowest GPUs that anybody shares write, in bytes a nanosecond;
	// an H100 is ten times as fast.
	fillRate = 256
	// fillLeast is what the shortest takes, and fillRow what a row counts for at least, in
	// bytes: rows that lie apart are written one by one.
	minFill = 2 * time.Microsecond
	fillRow = 512
	// fillMost is more bytes than any GPU has; it keeps products from overflowing.
	maxFill = 1 << 50
)

// fillTime is how long a fill of rows takes at most, of so many bytes each.
func fillTime(bytes, rows uint64) time.Duration {
	if bytes = max(bytes, fillRow); rows > maxFill/bytes {
		return maxFill / fillRate
	}
	return minFill + time.Duration(bytes*rows/fillRate)
}

// fillFits is whether a fill of expected time d may go to the GPU, and whether it does so as a
// brief one: such are bounded by their time in all. Of those that take longer there may be
// as many as of launches, and beside these: neither could keep the other away for ever.
// Where launches wait for their turns, which a fill has none of, there is one at a time.
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

// aheadFills is how many fills that take long may be on the GPU: the guest's limit is shared
// among its contexts, each of which may have one. Where a suspension takes them back there is
// nothing to share.
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

// fill has put put a fill of expected time d on the GPU, unless it has to wait.
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

// accountFill takes note of how a fill ended.
func (x *Executor) accountFill(on *ongoing, d time.Duration, brief bool, out gpu.Outcome) {
	x.ended(on, out)
	x.countFills(-1, d, brief)
	x.slot.AddFilled(x.gpuTime(out.Start, out.End))
}
