package tenant

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Burn keeps a processor busy, as a program does that uses no GPU.
type Burn struct {
	// Kind is compute or memory.
	Kind string `json:"kind"`
	// Bytes is the size of the memory that is walked through.
	Bytes int `json:"bytes,omitempty"`
	// The work begins At, in Unix nanoseconds, and is counted For so long. Without For it is only
	// prepared.
	At  int64         `json:"at,omitempty"`
	For time.Duration `json:"for,omitempty"`
}

// burning is what a program that burns has between two requests.
type burning struct {
	lines []line64 // each says which comes next
	at    [chains]uint32
	state uint32
}

// line64 is a cache line, the number of another in its first word.
type line64 [16]uint32

const (
	// chains is how many walks a program of memory has under way at a time.
	chains = 4
	// Each piece of work is some ten microseconds long.
	computeSteps, memorySteps = 10_000, 100
)

// burn does a kind of work and returns how often it was done within the window.
func (t *tenant) burn(b *Burn) (done int, err error) {
	if t.burning == nil {
		t.burning = &burning{}
	}
	x := t.burning
	work := x.compute
	switch b.Kind {
	case "compute":
	case "memory":
		work = x.walk
		if want := max(b.Bytes/64, chains); len(x.lines) != want {
			x.lay(want)
		}
	default:
		return 0, fmt.Errorf("no program of kind %q", b.Kind)
	}
	if b.For == 0 {
		return 0, nil
	}
	nap(time.Until(time.Unix(0, b.At)))
	for until := time.Unix(0, b.At).Add(b.For); time.Now().Before(until); done++ {
		work()
	}
	return done, nil
}

// lay makes one circle of all lines, in random order (Sattolo's algorithm).
func (x *burning) lay(n int) {
	x.lines = make([]line64, n)
	for i := range x.lines {
		x.lines[i][0] = uint32(i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := n - 1; i > 0; i-- {
		k := rng.IntN(i)
		x.lines[i][0], x.lines[k][0] = x.lines[k][0], x.lines[i][0]
	}
	for i := range x.at {
		x.at[i] = uint32(i * (n / chains))
	}
}

// walk goes some lines on in each chain.
func (x *burning) walk() {
	for range memorySteps {
		for i, at := range x.at {
			x.at[i] = x.lines[at][0]
		}
	}
}

// compute steps a generator.
func (x *burning) compute() {
	v := x.state
	for range computeSteps {
		v = v*1664525 + 1013904223
	}
	x.state = v
}
