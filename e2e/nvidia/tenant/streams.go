package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vgpud/gpu/corpus"
	"vgpud/guestagent/driver"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// Stream launches events of a job's kernel by stores, one behind the other, as a card does that has
// packets without end. The event kernel stays registered for the next stream of the job.
type Stream struct {
	Job int `json:"job"`
	// Depth is how many events are under way at a time; 0 stands for 1.
	Depth int `json:"depth,omitempty"`
	// At, Warm, For, After and Count are as of a [Run]. Without For and Count the kernel is only
	// registered.
	At    int64         `json:"at,omitempty"`
	Warm  time.Duration `json:"warm,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	After time.Duration `json:"after,omitempty"`
	Count int           `json:"count,omitempty"`
}

// register unregisters the event kernels that there are, and registers others.
func (g *guest) register(ctx context.Context, launches ...*driver.Launch) error {
	for len(g.events) > 0 {
		if err := g.events[0].Close(ctx); err != nil {
			return err
		}
		g.events = g.events[1:]
	}
	g.eventsOf = nil
	for _, l := range launches {
		k, err := g.gpu.RegisterEventKernel(ctx, l, eventEntries)
		if err != nil {
			return err
		}
		g.events = append(g.events, k)
	}
	return nil
}

// eventKernel returns the event kernel of a job of one launch, whose entries all have its parameters.
func (g *guest) eventKernel(ctx context.Context, j *job) (*driver.EventKernel, error) {
	if len(j.steps) != 1 {
		return nil, fmt.Errorf("%s has %d launches, and an event is one", j.name, len(j.steps))
	}
	if g.eventsOf == j {
		return g.events[0], nil
	}
	s := &j.steps[0]
	err := g.register(ctx, &driver.Launch{
		Function: s.function.(guestFunction).Function, Grid: dim(s.grid), Block: dim(s.block), SharedBytes: s.shared, Params: s.params,
	})
	if err != nil {
		return nil, err
	}
	g.eventsOf = j
	return g.events[0], nil
}

// stream carries out a request. Its result counts as a run's does, with events for launches.
// Turnarounds are from rings until flags were seen.
func (t *tenant) stream(ctx context.Context, s *Stream) (*Ran, error) {
	g, ok := t.machine.(*guest)
	if !ok {
		return nil, errors.New("only guests have event kernels")
	}
	j, err := t.job(s.Job)
	if err != nil {
		return nil, err
	}
	k, err := g.eventKernel(ctx, j)
	if err != nil {
		return nil, err
	}
	if s.For == 0 && s.Count == 0 {
		return &Ran{}, nil
	}
	begin := time.Now()
	if s.At != 0 {
		begin = time.Unix(0, s.At)
		nap(time.Until(begin))
	}
	c := newCard(s, begin)
	if err := c.stream(k.Queue(), k.Launch); err != nil {
		return nil, fmt.Errorf("%s: %w", j.name, err)
	}
	return &c.ran, nil
}

// card launches the events of a stream.
type card struct {
	*Stream
	from, to, until time.Time
	rung            []time.Time // of events under way, oldest first
	ran             Ran
}

func newCard(s *Stream, begin time.Time) *card {
	c := &card{Stream: s, from: begin.Add(s.Warm), to: begin.Add(s.Warm + s.For)}
	c.until = c.to.Add(s.After)
	return c
}

// over reports whether nothing new may start.
func (c *card) over(now time.Time, begun int) bool {
	if c.For == 0 {
		return begun == c.Count
	}
	return !now.Before(c.until)
}

// stream launches all events, by launch, and takes their ends.
func (c *card) stream(q *eventqueue.Launcher, launch func() error) error {
	begin, begun := time.Now(), 0
	for heard := begin; ; {
		now := time.Now()
		for len(c.rung) < min(max(c.Depth, 1), q.Entries()) && !c.over(now, begun) {
			if _, ok := q.Free(); !ok {
				return errors.New("the queue has no free entry")
			}
			c.rung = append(c.rung, now)
			if err := launch(); err != nil {
				return err
			}
			begun++
			now = time.Now()
		}
		if len(c.rung) == 0 {
			break
		}
		if _, ok := q.Done(); ok {
			q.Complete()
			heard = time.Now()
			c.ended(heard)
		} else if now.Sub(heard) > eventLimit {
			return fmt.Errorf("no event has ended for %v", eventLimit)
		}
	}
	if c.ran.Window = c.For; c.For == 0 {
		c.ran.Window = time.Since(begin)
	}
	return nil
}

// ended counts the end of the oldest event.
func (c *card) ended(at time.Time) {
	took := at.Sub(c.rung[0])
	c.rung = c.rung[:copy(c.rung, c.rung[1:])]
	c.ran.All++
	if c.For > 0 && (at.Before(c.from) || at.After(c.to)) {
		return
	}
	c.ran.Launches++
	if len(c.ran.Turnarounds) < Kept {
		c.ran.Turnarounds = append(c.ran.Turnarounds, took)
	}
}

// Work is a kernel of EDGE's figures: of the corpus, for what a stream of small or large launches has
// each of them do.
type Work struct {
	// Kernel is matmul, ping or ipv4, and Size how many blocks a product has, or how many packets come at a
	// time.
	Kernel string `json:"kernel"`
	Size   int    `json:"size"`
}

// tile is the width of the corpus's blocks of a product, and lanes how many packets are a block.
const tile, lanes = 16, 32

// loadWork loads the kernel and fills its memory.
func loadWork(ctx context.Context, m machine, w *Work) (*job, error) {
	if w.Kernel == "matmul" {
		return loadProduct(ctx, m, w.Size)
	}
	entries := map[string]string{"ping": "udp_ping", "ipv4": "ipv4_forward"}
	j, err := loadCase(ctx, m, w.Kernel+"/small")
	if err != nil {
		return nil, err
	}
	s := j.steps[0]
	packets := j.program.Buffers[0]
	if entries[w.Kernel] != j.program.Steps[0].Entry || packets.Name != "packets" || w.Size < 1 || w.Size > packets.Size/slotBytes {
		return nil, fmt.Errorf("no packets, or not so many")
	}
	// The packets are fewer than the case's, and live longer.
	s.grid = [3]uint32{uint32(w.Size+lanes-1) / lanes, 1, 1}
	s.params = append([]byte(nil), s.params...)
	binary.LittleEndian.PutUint32(s.params[len(s.params)-4:], uint32(w.Size))
	at := j.buffers["packets"]
	fresh := lively(packets.Init[:w.Size*slotBytes])
	if err := m.copyIn(ctx, at, fresh); err != nil {
		return nil, err
	}
	return &job{steps: []command{s}, fresh: []restore{{at, fresh}}, results: []result{{at, uint64(len(fresh))}}}, nil
}

// The packets' places in memory, as in the corpus.
const slotBytes, ttlAt, sumAt = 64, 24, 26

// Lively is how often a stream's IPv4 packets can be forwarded.
const Lively = 254

// lively returns packets that can all be forwarded often.
func lively(packets []byte) []byte {
	packets = append([]byte(nil), packets...)
	for at := 0; at < len(packets); at += slotBytes {
		header := packets[at+ttlAt-8:][:20]
		header[0], header[8] = 0x45, Lively+1
		clear(packets[at+sumAt:][:2])
		sum := uint32(0)
		for i := 0; i < len(header); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(header[i:]))
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(packets[at+sumAt:], ^uint16(sum))
	}
	return packets
}

// loadProduct loads a product of so many blocks: as nearly as wide as high.
func loadProduct(ctx context.Context, m machine, blocks int) (*job, error) {
	high := max(int(math.Sqrt(float64(blocks))), 1)
	for blocks%high != 0 {
		high--
	}
	wide := blocks / high
	n := tile * wide // the factors' common side; of the product the upper rows are computed
	s := scaled{
		name: fmt.Sprintf("matmul of %d blocks", blocks), kernel: "matmul", entry: "matmul",
		grid: [3]uint32{uint32(wide), uint32(high), 1}, block: [3]uint32{tile, tile, 1},
		args: []any{factor(n), factor(n), buffer{uint64(4 * n * n), nil}, n},
	}
	k, ok := corpus.ByName(s.kernel)
	if !ok {
		return nil, fmt.Errorf("the corpus has no kernel %q", s.kernel)
	}
	return loadScaledOf(ctx, m, &s, k.PTX(corpus.SM80))
}

// factor is a square matrix.
func factor(side int) buffer {
	return buffer{uint64(4 * side * side), func(rng *rand.Rand) []byte { return reals(rng)[:4*side*side] }}
}
