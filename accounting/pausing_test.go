package accounting_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/clock"
)

// pausing is a recorder that runs, of a record that it may pause, in simulated time.
type pausing struct {
	t       *testing.T
	now     clock.Sim
	rec     *accountingtest.Record
	handler listener
	r       *accounting.Recorder
	cancel  context.CancelFunc
	ended   chan error
	random  *rand.Rand
}

// newPausing returns one whose contexts wait for each of their short launches.
func newPausing(t *testing.T, config accounting.RecorderConfig) *pausing {
	gpu := h100()
	p := &pausing{t: t, ended: make(chan error, 1), random: rand.New(rand.NewPCG(7, 9)), handler: listener{used: make(map[accounting.GroupID]time.Duration)}}
	p.now.Advance(gpu.Now())
	p.rec = &accountingtest.Record{GPU: gpu, Clock: &p.now}
	for range 4 {
		p.join(accountingtest.Random(p.random, 100*us, 0.2), 1)
	}
	var err error
	p.r, err = accounting.NewRecorder(accounting.RecordedGPU{Name: "gpu0", Source: p.rec, Work: p.rec, Handler: &p.handler, Config: config}, &p.now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	go func() { p.ended <- p.r.Run(ctx) }()
	t.Cleanup(cancel)
	return p
}

// join adds a context.
func (p *pausing) join(kernel func() (time.Duration, time.Duration), depth int) *accountingtest.RecordedContext {
	n := len(p.rec.Contexts)
	c := &accountingtest.RecordedContext{PID: 10 + n, Group: accounting.GroupID(1 + n), Kernel: kernel, Depth: depth}
	p.rec.GPU.Add(c)
	p.rec.Contexts = append(p.rec.Contexts, c)
	return c
}

// pass lets time go by.
func (p *pausing) pass(d time.Duration) {
	const step = 10 * ms
	for range d / step {
		p.now.AwaitWaiters(1)
		p.now.Advance(step)
	}
	p.now.AwaitWaiters(1)
}

// charged checks that each context is charged what it used, but for a part of the time since the
// start.
func (p *pausing) charged(part float64) {
	p.t.Helper()
	for i, c := range p.rec.Contexts {
		off := p.handler.used[c.Group] - c.Busy()
		if most := time.Duration(part * float64(p.now.Now())); off > most || off < -most {
			p.t.Errorf("context %d is charged %v of %v", i, p.handler.used[c.Group], c.Busy())
		}
	}
}

// paused checks whether the record is paused, and how often it was.
func (p *pausing) paused(want bool, times uint64) {
	p.t.Helper()
	if p.rec.Paused.Load() != want || p.r.Paused() != want || p.r.Pauses() != times {
		p.t.Fatalf("after %v: paused %v, %d times: want %v, %d", p.now.Now(), p.rec.Paused.Load(), p.r.Pauses(), want, times)
	}
}

// TestRecordIsPaused tests that a record that costs much is paused where reports tell as much,
// resumed where they don't, and that contexts are charged what they used all the while.
func TestRecordIsPaused(t *testing.T) {
	p := newPausing(t, accounting.RecorderConfig{})
	p.now.AwaitWaiters(1)
	var long []*accountingtest.RecordedContext
	for range 3 {
		c := p.join(fixed(5*ms, 0), 4)
		p.rec.GPU.Hold(c, true)
		long = append(long, c)
	}
	p.pass(time.Second)
	p.paused(true, 1)
	p.pass(5 * time.Second)
	p.paused(true, 1)
	p.charged(0.001)
	// Three that always have long launches outstanding: only a record can tell them apart.
	for _, c := range long {
		p.rec.GPU.Hold(c, false)
	}
	p.pass(200 * ms)
	p.paused(false, 1)
	p.pass(10 * time.Second)
	p.paused(false, 1)
	p.charged(0.005)
	for _, c := range long {
		p.rec.GPU.Hold(c, true)
	}
	p.pass(3 * time.Second)
	p.paused(true, 2)
	p.charged(0.005)
}

// TestRecordIsChecked tests that a paused record is resumed for a while to compare it, after ever
// longer pauses.
func TestRecordIsChecked(t *testing.T) {
	p := newPausing(t, accounting.RecorderConfig{})
	var lengths, checks []time.Duration
	since, was := time.Duration(0), false
	for p.now.Now() < 3*time.Minute {
		p.pass(20 * ms)
		if now := p.rec.Paused.Load(); now != was {
			if was {
				lengths = append(lengths, p.now.Now()-since)
			} else {
				checks = append(checks, p.now.Now()-since)
			}
			since, was = p.now.Now(), now
		}
	}
	if len(lengths) != 3 || lengths[0] < 20*time.Second || lengths[0] > 21*time.Second || lengths[1] < 40*time.Second || lengths[2] < 80*time.Second {
		t.Errorf("pauses of %v", lengths)
	}
	for _, d := range checks {
		if d > time.Second {
			t.Errorf("checks of %v", checks)
		}
	}
	p.charged(0.001)
}

// TestRecordIsKept tests when a record is not paused though there are many switches.
func TestRecordIsKept(t *testing.T) {
	for name, change := range map[string]func(p *pausing, c *accounting.RecorderConfig){
		"it is asked for": func(_ *pausing, c *accounting.RecorderConfig) { c.Always = true },
		"a process works that nobody reports about": func(p *pausing, _ *accounting.RecorderConfig) {
			p.join(fixed(200*us, 2*ms), 1)
			p.rec.Contexts = p.rec.Contexts[:4]
		},
		"an executor hides its launches": func(p *pausing, _ *accounting.RecorderConfig) {
			p.join(fixed(300*us, 0), 1) // which would be charged for them
			p.rec.Alter = func(w *accounting.Work) {
				if w.PID == 10 {
					w.Intervals, w.Since = nil, 0
				}
			}
		},
		"contexts come and go": func(p *pausing, _ *accounting.RecorderConfig) {
			p.handler.then = func() {
				if p.handler.phases%10 == 0 {
					p.rec.Contexts[3].PID++
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var config accounting.RecorderConfig
			if name == "it is asked for" {
				change(nil, &config)
			}
			p := newPausing(t, config)
			if name != "it is asked for" {
				p.now.AwaitWaiters(1)
				change(p, nil)
			}
			p.pass(3 * time.Second)
			p.paused(false, 0)
		})
	}
}

// TestRecordIsResumedForOthers tests that a context that comes ends a pause, since the record alone
// tells whether it is who it says.
func TestRecordIsResumedForOthers(t *testing.T) {
	p := newPausing(t, accounting.RecorderConfig{})
	p.pass(time.Second)
	p.paused(true, 1)
	p.join(fixed(100*us, 3*ms), 1)
	p.pass(100 * ms)
	p.paused(false, 1)
	p.pass(time.Second)
	p.paused(true, 2)
	p.charged(0.002)
}

// TestRecordCantBeResumed tests that a record that does not come back is one that can't be read any
// more.
func TestRecordCantBeResumed(t *testing.T) {
	p := newPausing(t, accounting.RecorderConfig{})
	p.pass(time.Second)
	p.paused(true, 1)
	refused := errors.New("no room for a buffer")
	p.rec.ResumeErr = refused
	p.join(fixed(100*us, 3*ms), 1)
	p.now.Advance(20 * ms)
	if err := <-p.ended; !errors.Is(err, refused) || !errors.Is(p.handler.failed, refused) {
		t.Errorf("ended with %v, told of %v", err, p.handler.failed)
	}
}
