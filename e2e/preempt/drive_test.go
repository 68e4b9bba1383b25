package preempt

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"vgpud/gpu/corpus"
	"vgpud/gpu/soft/simt"
	"vgpud/guestagent/preempt"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/vgpu/abi"
)

// suffix is the suffix of each form's entry name.
var suffix = map[abi.PreemptForm]string{
	abi.PreemptSingle: "__vgpud_single", abi.PreemptCoarse: "__vgpud_coarse", abi.PreemptPersistent: "__vgpud_persist",
}

var allForms = []abi.PreemptForm{abi.PreemptSingle, abi.PreemptCoarse, abi.PreemptPersistent}

// drive is one run: a case with its launches in preemptible forms.
type drive struct {
	*rig
	*schedule
	rng *rand.Rand
	// evictions is how many more times the evict word may be written.
	evictions   int
	often       float64 // evictions during the time of the original
	chance      float64 // probability of an eviction before a turn
	most        uint64  // maximum of a launch's instructions
	refill      bool    // after a partial eviction, launch again beside the rest
	form        abi.PreemptForm
	description []string // describes the run
	evicted     int      // launches that left tasks undone
	used        map[abi.PreemptForm]int
}

// originalMost is the limit of warp instructions for an original kernel.
const originalMost = 50_000_000

// newDrive draws a run.
func newDrive(r *rig, seed uint64) *drive {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	d := &drive{rig: r, rng: rng, schedule: newSchedule(rng), used: map[abi.PreemptForm]int{}}
	d.evictions = 1 + rng.IntN(8)
	d.often = math.Exp2(8*rng.Float64() - 1)
	d.refill = rng.IntN(2) == 0
	return d
}

// original executes the case's original kernels.
func (r *rig) original(s *schedule) error {
	r.work = r.work[:0]
	for i := range r.c.Steps {
		n, err := r.asItIs(s, &r.c.Steps[i])
		if err != nil {
			return fmt.Errorf("launch %d: %w", i, err)
		}
		r.work = append(r.work, n)
	}
	return nil
}

// asItIs executes one step's original kernel, and returns the number of its warp instructions.
func (r *rig) asItIs(s *schedule, step *corpus.Launch) (uint64, error) {
	l, err := r.launch(step.Entry, step)
	if err != nil {
		return 0, err
	}
	if len(r.offered(step.Entry)) == 0 { // it may need all its blocks at once
		roomy := *s
		roomy.perSM, roomy.lag = int(l.Grid.Count()), 1
		s = &roomy
	}
	l.SMs = s.sms
	g, err := simt.NewGrid(l)
	if err != nil {
		return 0, err
	}
	err = s.run(originalMost, []*simt.Grid{g}, func() (*simt.Grid, error) { return nil, nil })
	if err != nil {
		return 0, fmt.Errorf("%s: %w", step.Entry, err)
	}
	return g.Counts().WarpInstructions, nil
}

// settle runs the originals several times with different interleavings. It records the results and
// which parts of them are always equal.
func (r *rig) settle(seed, times uint64) error {
	for n := range times {
		r.reset()
		if err := r.original(newSchedule(rand.New(rand.NewPCG(seed, n)))); err != nil {
			return fmt.Errorf("the original: %w", err)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("the original: %w", err)
		}
		if n == 0 {
			r.reference = r.snapshot()
			continue
		}
		for i, reg := range r.regions {
			reg.loose = reg.loose || string(reg.data) != string(r.reference[i])
		}
	}
	r.settled = true
	return nil
}

// offered returns the forms of an entry in the module.
func (r *rig) offered(entry string) (forms []abi.PreemptForm) {
	for _, f := range allForms {
		if r.module.Kernel(entry+suffix[f]) != nil && (r.only == 0 || r.only == f) {
			forms = append(forms, f)
		}
	}
	return forms
}

// run performs the whole case and compares the results.
func (d *drive) run() error {
	d.reset()
	for i := range d.c.Steps {
		s := &d.c.Steps[i]
		forms := d.offered(s.Entry)
		if len(forms) == 0 {
			if _, err := d.asItIs(d.schedule, s); err != nil {
				return fmt.Errorf("launch %d: %w", i, err)
			}
			continue
		}
		if err := d.preemptible(s, forms[d.rng.IntN(len(forms))], d.work[i]); err != nil {
			return fmt.Errorf("launch %d, %s: %w", i, s.Entry, err)
		}
	}
	return d.check()
}

// preemptible performs one launch in a form, to its end. The original executes work warp
// instructions.
func (d *drive) preemptible(s *corpus.Launch, form abi.PreemptForm, work uint64) error {
	c := preemption.Config{Form: form, Grid: s.Grid, Group: 1, Every: 1}
	if form != abi.PreemptSingle {
		c.Group = logUniform(d.rng, 256)
		if tasks := s.Grid[0] * s.Grid[1] * s.Grid[2]; d.rng.IntN(4) > 0 { // so that there are several units
			c.Group = logUniform(d.rng, min(256, max(1, tasks/4)))
		}
	}
	if d.group > 0 && form != abi.PreemptSingle {
		c.Group = d.group
	}
	if form == abi.PreemptPersistent {
		c.Every = 1
		if d.rng.IntN(2) == 0 {
			c.Every = logUniform(d.rng, 256)
		}
		c.Resident = uint32(1 + d.rng.IntN(2*d.sms*d.perSM))
	}
	d.form, d.chance = form, min(0.5, d.often/d.turns(work))
	d.most = 1_000_000 + 20*work // a form adds little; a launch that executes more is deadlocked
	d.used[form]++
	d.description = append(d.description, fmt.Sprintf("%s %v group %d every %d resident %d", s.Entry, form, c.Group, c.Every, c.Resident))
	l, err := preemption.New(c)
	if err != nil {
		return err
	}
	m, err := d.newMemory(l)
	if err != nil {
		return err
	}
	base, err := d.launch(s.Entry+suffix[form], s)
	if err != nil {
		return err
	}
	base.SMs = d.sms
	most := l.Launches() + 1000
	for p, done := l.First(), false; !done; {
		if l.Launches() > most {
			return fmt.Errorf("launched %d times", l.Launches())
		}
		evicted, err := d.carryOut(l, &p, m, base)
		if err != nil {
			return err
		}
		if err := m.intact(); err != nil {
			return err
		}
		rb := preemption.Readback{Control: preemption.DecodeControl((*[abi.ControlBytes]byte)(m.control.data)), Evicted: evicted}
		rb.Skipped = m.skipped.data[:l.SkippedRead(rb.Control)]
		if p, done, err = l.Next(rb); err != nil {
			return err
		}
		if !done {
			d.evicted++
		}
		if l.Unasked() > 0 {
			return fmt.Errorf("blocks left without an eviction, %d of %d tasks remain", l.Remaining(), l.Tasks())
		}
	}
	return m.drop(d.mem)
}

// carryOut executes one plan, with evictions, and reports whether there were any.
func (d *drive) carryOut(l *preemption.Launch, p *preemption.Plan, m *memory, base simt.Launch) (evicted bool, err error) {
	stay := p.Stay
	g, err := d.start(p, m, base)
	if err != nil {
		return false, err
	}
	evict := func() {
		d.evictions--
		word := uint32(d.rng.IntN(d.sms + 2))
		switch d.rng.IntN(4) {
		case 0, 1:
			word = abi.EvictAll
		case 2:
			word = d.rng.Uint32()
		}
		evicted = evicted || word != 0
		if m.word.data != nil {
			binary.LittleEndian.PutUint32(m.word.data, word)
		} else {
			m.setWord(abi.ControlEvict, word)
		}
	}
	if d.evictions > 0 && !stay && d.rng.IntN(8) == 0 {
		evict() // before any block starts
	}
	tick := func() (*simt.Grid, error) {
		if d.evictions == 0 || stay || d.rng.Float64() >= d.chance {
			return nil, nil
		}
		if d.form == abi.PreemptPersistent && evicted && d.refill && d.rng.IntN(2) == 0 {
			d.evictions--
			more, err := l.Refill(uint32(1 + d.rng.IntN(d.sms)))
			if err != nil {
				return nil, err
			}
			return d.start(&more, m, base)
		}
		evict()
		return nil, nil
	}
	return evicted, d.schedule.run(d.most, []*simt.Grid{g}, tick)
}

// start prepares a plan, up to the launch.
func (d *drive) start(p *preemption.Plan, m *memory, base simt.Launch) (*simt.Grid, error) {
	for _, at := range p.Zero {
		m.setWord(at, 0)
		if at == abi.ControlEvict {
			clear(m.word.data)
		}
	}
	clear(m.skipped.data[:p.BitmapBytes])
	a := p.Args
	a.Control, a.Skipped, a.Word = m.control.at, m.skipped.at, m.word.at
	if p.List != nil {
		a.List = m.list.at
		for i, u := range p.List {
			binary.LittleEndian.PutUint32(m.list.data[4*i:], u)
		}
	}
	base.Grid = dim(p.Grid)
	if err := setArgs(&base, a); err != nil {
		return nil, err
	}
	return simt.NewGrid(base)
}

// memory is the memory that a preemptible launch needs besides the kernel's own. It has exactly the
// requested sizes, so that accesses beyond them fault.
type memory struct {
	control, list, skipped piece
	word                   piece // in host memory, if kernels read or copy that
}

type piece struct {
	at   uint64
	data []byte
}

// garbage is the initial contents of memory.
const garbage = 0xa5

func (r *rig) newMemory(l *preemption.Launch) (*memory, error) {
	m := new(memory)
	wordBytes := uint64(0)
	if r.wordCheck.Word != preempt.DeviceWord {
		wordBytes = 4
	}
	for _, x := range []struct {
		p    *piece
		size uint64
	}{{&m.control, abi.ControlBytes}, {&m.list, l.ListBytes()}, {&m.skipped, l.SkippedBytes()}, {&m.word, wordBytes}} {
		if x.size == 0 {
			continue
		}
		var err error
		if x.p.at, x.p.data, err = r.alloc(x.size); err != nil {
			return nil, err
		}
		for i := range x.p.data {
			x.p.data[i] = garbage
		}
	}
	return m, nil
}

func (m *memory) setWord(at, v uint32) { binary.LittleEndian.PutUint32(m.control.data[at:], v) }

// intact checks that the kernel only wrote its own words of the control block.
func (m *memory) intact() error {
	for at, b := range m.control.data {
		if at%abi.ControlAlign >= 4 && b != garbage {
			return fmt.Errorf("byte %#x of the control block was written", at)
		}
	}
	return nil
}

func (m *memory) drop(mem *simt.Memory) error {
	for _, p := range []piece{m.control, m.list, m.skipped, m.word} {
		if p.data != nil {
			if err := mem.Unmap(p.at); err != nil {
				return err
			}
		}
	}
	return nil
}
