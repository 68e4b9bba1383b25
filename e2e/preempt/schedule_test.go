package preempt

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"vgpud/gpu/soft/simt"
)

// errEndless means that a launch took far more instructions than it should, mostly because its
// blocks wait for one that never runs.
var errEndless = errors.New("does not end")

// schedule is how blocks are interleaved. Any resident block may run next, for a random number of
// instructions, so that the warps of a block drift apart as well.
type schedule struct {
	rng   *rand.Rand
	sms   int
	perSM int
	pace  pace
	lag   int // a block is started in one of lag turns if there is room
	nanos uint64
	cycle uint64
}

// pace is the distribution of the number of instructions in a turn.
type pace uint8

const (
	fine   pace = iota // a few
	mixed              // one to a hundred
	coarse             // mostly as many as a block has before a barrier
	jerky              // one, or very many
	paces
)

func newSchedule(rng *rand.Rand) *schedule {
	return &schedule{
		rng: rng, sms: 1 + rng.IntN(6), perSM: int(logUniform(rng, 4)), pace: pace(rng.IntN(int(paces))),
		lag: []int{1, 1, 4, 40}[rng.IntN(4)], nanos: 1000,
	}
}

func (s *schedule) String() string {
	return fmt.Sprintf("%d SMs of %d blocks, pace %d, lag %d", s.sms, s.perSM, s.pace, s.lag)
}

// budget returns the number of instructions of the next turn.
func (s *schedule) budget() int {
	switch s.pace {
	case fine:
		return 1 + s.rng.IntN(4)
	case mixed:
		return 1 + s.rng.IntN(100)
	case coarse:
		return 1 + s.rng.IntN(5000)
	}
	if s.rng.IntN(2) == 0 {
		return 1
	}
	return 20_000
}

// turns estimates how many turns the given warp instructions take. A turn executes at least a basic
// block.
func (s *schedule) turns(instructions uint64) float64 {
	each := map[pace]float64{fine: 6, mixed: 55, coarse: 400, jerky: 400}[s.pace]
	return 1 + float64(instructions)/each
}

// run executes grids concurrently to their ends. Between two turns it calls tick, which may add a
// grid. It gives up after most warp instructions.
func (s *schedule) run(most uint64, grids []*simt.Grid, tick func() (*simt.Grid, error)) error {
	var resident []*simt.Block
	free := make([]int, s.sms)
	room := s.sms * s.perSM
	for i := range free {
		free[i] = s.perSM
	}
	for {
		more, err := tick()
		if err != nil {
			return err
		}
		if more != nil {
			grids = append(grids, more)
		}
		if room > 0 && (len(resident) == 0 || s.rng.IntN(s.lag) == 0) {
			sm := s.rng.IntN(s.sms)
			for free[sm] == 0 {
				sm = (sm + 1) % s.sms
			}
			for _, g := range grids {
				if b := g.StartBlock(sm); b != nil {
					resident = append(resident, b)
					free[sm]--
					room--
					break
				}
			}
		}
		if len(resident) == 0 {
			return nil
		}
		i := s.rng.IntN(len(resident))
		b := resident[i]
		g, sm := b.Grid(), b.SM()
		r := b.Step(simt.Now{Cycle: s.cycle, Nanos: s.nanos, CyclesPerUS: 1000}, s.budget())
		s.cycle += r.Cycles
		s.nanos += r.Cycles
		switch r.State {
		case simt.Faulted:
			return r.Fault
		case simt.Sleeping:
			s.nanos = max(s.nanos, r.Wake)
		case simt.Finished:
			resident[i] = resident[len(resident)-1]
			resident = resident[:len(resident)-1]
			free[sm]++
			room++
		}
		if g.Counts().WarpInstructions > most {
			return fmt.Errorf("%w: %d warp instructions, %d of %d blocks ended", errEndless, most, g.Finished(), g.Blocks())
		}
	}
}

// logUniform draws an integer from [1, most] such that each power of two is equally likely.
func logUniform(rng *rand.Rand, most uint32) uint32 {
	return min(most, uint32(math.Exp2(rng.Float64()*math.Log2(float64(most)+1))))
}
