package vm

import (
	"context"
	"testing"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// TestGrowthIsBounded: a guest whose contexts ask for more memory again and again, and get none, keeps
// the daemon no busier than its rate allows; and one that waits for that can be ended.
func TestGrowthIsBounded(t *testing.T) {
	sim := &clock.Sim{}
	b := testExecutors(t)
	b.clock = sim
	defer func() { b.clock = clock.Real{} }()
	p := &process{b: b, task: &ipc.Task{}}
	var end context.CancelFunc
	p.ctx, end = context.WithCancel(t.Context())
	m, err := ipc.NewMessage(ipc.KindGrow, ipc.Grow{Memory: 5})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	ask := func() { asked <- p.receiveGrow(&m) }
	for range growthBurst {
		go ask()
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
	}
	waits := func() {
		t.Helper()
		there := make(chan struct{})
		go func() {
			sim.AwaitWaiters(1)
			close(there)
		}()
		select {
		case <-asked:
			t.Fatal("one more is passed on at once")
		case <-there:
		}
	}
	for range 3 {
		go ask()
		waits()
		sim.Advance(growthEvery)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
	}
	p.moves.grow = 0
	go ask()
	waits()
	end()
	if err := <-asked; err != nil || p.moves.grow != 0 {
		t.Errorf("a context that ends has asked for %d bytes: %v", p.moves.grow, err)
	}
}
