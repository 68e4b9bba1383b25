package bar0_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/nvreg"
)

// trace is a recording of a GPU's registers: a file of lines. A line is a time in nanoseconds, an
// offset and a value in hexadecimal; or an expected result, "busy group nanoseconds", "gone" or
// "refused words"; or a comment. A trace with PTIMER's words is of a soft GPU, whose PTIMER stands
// still between two changes.
type trace struct {
	writes  []write
	length  time.Duration
	timer   bool
	busy    map[accounting.GroupID]time.Duration
	gone    bool
	refused string
}

type write struct {
	at         time.Duration
	off, value uint32
}

func readTrace(name string) (*trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tr := &trace{busy: make(map[accounting.GroupID]time.Duration)}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var (
			w     write
			group accounting.GroupID
			d     time.Duration
		)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == "gone":
			tr.gone = true
			continue
		case strings.HasPrefix(line, "refused "):
			tr.refused = strings.TrimPrefix(line, "refused ")
			continue
		case strings.HasPrefix(line, "busy "):
			if _, err := fmt.Sscanf(line, "busy %d %d", &group, &d); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", name, line, err)
			}
			tr.busy[group] = d
			continue
		}
		if _, err := fmt.Sscanf(line, "%d %x %x", &w.at, &w.off, &w.value); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, line, err)
		}
		tr.writes = append(tr.writes, w)
		tr.length = w.at
		tr.timer = tr.timer || w.off == nvreg.PTimerTime0
	}
	return tr, lines.Err()
}

// player replays a trace into registers, by a clock that advances with each reading.
type player struct {
	trace *trace
	file  nvreg.File
	clock time.Duration
	next  int
}

const (
	readingTakes = 250 * time.Nanosecond
	// boot is the offset of PTIMER from the host's clock in a trace with a running PTIMER.
	boot = 37 * time.Hour
)

func (p *player) now() time.Duration {
	p.clock += readingTakes
	p.until(p.clock)
	return p.clock
}

func (p *player) gpuTime() time.Duration {
	if p.trace.timer {
		return p.clock
	}
	return p.clock + boot
}

func (p *player) until(t time.Duration) {
	for ; p.next < len(p.trace.writes) && p.trace.writes[p.next].at <= t; p.next++ {
		w := p.trace.writes[p.next]
		p.file.Store(w.off, w.value)
	}
	if !p.trace.timer {
		p.file.StoreTime(p.gpuTime())
	}
}

// The layout from the public register manuals, separate from package nvreg's, so that a mistake in
// either of them shows.
const (
	pmcBoot0    = 0x000000
	ptopCfg     = 0x0224fc
	ptopRow     = 0x022800
	runlistBase = 0x090000 // of the graphics engine in these traces
	chramConfig = runlistBase + 0x004
	engine      = 1 // its number on its runlist
	status0     = runlistBase + 0x200 + 64*engine

	valid, save, load, change = 1 << 13, 5 << 13, 6 << 13, 7 << 13
	busyBit                   = 1 << 31
)

// generator writes a trace.
type generator struct {
	b    strings.Builder
	now  time.Duration
	busy map[int]time.Duration
}

func (g *generator) write(off, value uint32) {
	fmt.Fprintf(&g.b, "%d %06x %08x\n", g.now.Nanoseconds(), off, value)
}

// begin writes the constant registers: those of a GPU of an architecture, whose device table has a
// copy engine, the graphics engine, and invalid rows in between.
func (g *generator) begin(what string, architecture uint32) {
	fmt.Fprintf(&g.b, "# %s\n", what)
	g.write(pmcBoot0, architecture<<24|0x0a1)
	g.write(ptopCfg, 9<<20|3<<16|4<<4|2)
	rows := []uint32{
		0x13<<24 | 1<<31, 1<<30 | 1<<31 | 0x104000, 0x0a0000, // a copy engine
		0, 0,
		0x00<<24 | 5 | 1<<31, 1<<30 | 1<<31 | 0x400000, runlistBase | engine,
		0,
	}
	for i, row := range rows {
		g.write(ptopRow+4*uint32(i), row)
	}
	g.write(chramConfig, 0x800000|11)
	g.write(status0, 0)
}

// status makes the engine show a status for a while.
func (g *generator) status(value uint32, d time.Duration) {
	g.write(status0, value)
	g.now += d
}

// turn has a group switch onto the engine, execute, and idle there, after the group before it,
// from, was switched off.
func (g *generator) turn(from, to int, executes, idles time.Duration) {
	if from != to {
		g.status(busyBit|change|uint32(from)|uint32(to)<<16, 4*us)
		g.status(busyBit|save|uint32(from)|uint32(to)<<16, 64*us)
		g.status(busyBit|load|uint32(from)|uint32(to)<<16, 80*us)
	}
	g.status(busyBit|valid|uint32(to), executes)
	g.busy[to] += executes
	if idles > 0 {
		g.status(valid|uint32(to), idles)
	}
}

func (g *generator) end(name string) error {
	g.write(status0, 0)
	for _, group := range slices.Sorted(maps.Keys(g.busy)) {
		fmt.Fprintf(&g.b, "busy %d %d\n", group, g.busy[group].Nanoseconds())
	}
	return os.WriteFile(filepath.Join("testdata", name+".trace"), []byte(g.b.String()), 0o644)
}

const (
	turing = 0x16
	ampere = 0x17
	hopper = 0x18
)

// writeTraces writes the traces in testdata.
func writeTraces() error {
	newGenerator := func() *generator { return &generator{busy: make(map[int]time.Duration)} }

	turns := newGenerator()
	turns.begin("Two guests of two channel groups take turns; one of them leaves the GPU idle at times.", hopper)
	turns.status(0, 2*time.Millisecond) // the sampler begins
	last := 0x123
	for range 20 {
		turns.turn(last, 0x123, 1024*us, 0)
		turns.turn(0x123, 0xffe, 500*us, 100*us)
		last = 0xffe
	}
	if err := turns.end("turns"); err != nil {
		return err
	}

	dry := newGenerator()
	dry.begin("One guest alone, whose context stays on the engine while it has no work.", ampere)
	dry.status(0, 2*time.Millisecond)
	for range 30 {
		dry.turn(7, 7, 300*us, 700*us)
	}
	if err := dry.end("dry"); err != nil {
		return err
	}

	gone := newGenerator()
	gone.begin("A GPU that falls off the bus.", hopper)
	gone.status(busyBit|valid|7, 5*time.Millisecond)
	gone.status(0xffffffff, time.Millisecond)
	gone.write(status0, 0xffffffff)
	gone.b.WriteString("gone\n")
	gone.busy = nil
	if err := os.WriteFile("testdata/gone.trace", []byte(gone.b.String()), 0o644); err != nil {
		return err
	}

	old := newGenerator()
	old.begin("A GPU from before Ampere.", turing)
	old.b.WriteString("refused GPU is older than Ampere\n")
	if err := os.WriteFile("testdata/old.trace", []byte(old.b.String()), 0o644); err != nil {
		return err
	}

	asleep := newGenerator()
	asleep.begin("Registers whose engine is powered down answer with an error's code.", hopper)
	asleep.write(ptopCfg, 0xbadf1002)
	asleep.b.WriteString("refused the GPU answers 0xbadf1002\n")
	return os.WriteFile("testdata/asleep.trace", []byte(asleep.b.String()), 0o644)
}
