package daemon

import (
	"errors"
	"os"
	"slices"
	"sync"

	"vgpud/mediator/ipc"
	"vgpud/mediator/tasks"
)

// answers are what a guest's process is to be told about its contexts that float. It may read late, or
// never, and nobody else waits for that.
type answers struct {
	mu sync.Mutex
	// tell starts the goroutine that tells what is due, unless telling: it does so already. It is nil
	// once the guest is gone.
	tell    func()
	telling bool
	// due has for each slot what is not told yet. A newer answer takes the place of an older one: it is
	// about a later context, or about the same one that still waited.
	due [ipc.MaxContexts]*ipc.Place
	// leaves has the contexts that are to leave, and are not told yet.
	leaves [ipc.MaxContexts]*ipc.Leave
	// lends are about the memory of spare executors, in order.
	lends []ipc.Lend
}

// maxLends bounds what is due about spare executors: a guest has one, and its process waits for one
// answer at a time.
const maxLends = 8

// addLend has a guest's process be told of a spare executor's memory. One that does not read gets no
// more refusals, but learns what it has and that it has it no longer.
func (a *answers) addLend(l ipc.Lend, refusal bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !refusal || len(a.lends) < maxLends {
		a.lends = append(a.lends, l)
	}
	a.notify()
}

// forgetLends has a guest's process be told nothing more of a spare executor that is gone. Otherwise
// one that has spares come and go, and reads nothing, would have the daemon keep an answer for each.
func (a *answers) forgetLends(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lends = slices.DeleteFunc(a.lends, func(l ipc.Lend) bool { return l.Number == number })
}

// lendAgain is addLend for what was due before all others.
func (a *answers) lendAgain(l ipc.Lend) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lends = append([]ipc.Lend{l}, a.lends...)
	a.notify()
}

// add has an answer be told. If it failed before, one that came since is told instead.
func (a *answers) add(pl *ipc.Place, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !failed || a.due[pl.Slot] == nil {
		a.due[pl.Slot] = pl
	}
	a.notify()
}

// addLeave has a context be told to leave.
func (a *answers) addLeave(l *ipc.Leave) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaves[l.Slot] = l
	a.notify()
}

// notify has what is due be told. Preconditions: a.mu is held.
func (a *answers) notify() {
	if a.tell != nil && !a.telling {
		a.telling = true
		a.tell()
	}
}

// stop has no goroutine tell what is due from now on, but one that does already.
func (a *answers) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell = nil
}

// due is a message that is due.
type dueMessage struct {
	kind  ipc.Kind
	slot  int
	body  any
	again func() // has it be told again
}

// take returns what is due, in order: a context is placed before it is told to leave. If that is
// nothing, the goroutine that asks has to end.
func (a *answers) take() (all []dueMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, pl := range a.due {
		if pl != nil {
			all, a.due[i] = append(all, dueMessage{ipc.KindPlace, i, pl, func() { a.add(pl, true) }}), nil
		}
	}
	for i, l := range a.leaves {
		if l != nil {
			all, a.leaves[i] = append(all, dueMessage{ipc.KindLeave, i, l, func() { a.addLeave(l) }}), nil
		}
	}
	// One at a time, so that one that has to be told again stays first.
	if len(a.lends) > 0 {
		l := a.lends[0]
		a.lends = a.lends[1:]
		all = append(all, dueMessage{ipc.KindLend, 0, l, func() { a.lendAgain(l) }})
	}
	a.telling = len(all) > 0
	return all
}

// tellPlace has a guest be told what was decided about one of its contexts.
func (s *Service) tellPlace(g *guest, d tasks.Decision) {
	pl := ipc.Place{
		Slot: d.Key.Slot, Generation: d.Key.Generation, Granted: d.Granted, Waited: d.Waited, Reason: uint32(d.Reason), Code: uint32(d.Code),
		Left: d.Left, Want: d.Want,
	}
	if d.Recall > 0 {
		g.answers.addLend(ipc.Lend{Number: d.Recall}, false)
		return
	}
	if d.Leave {
		g.answers.addLeave(&ipc.Leave{Slot: d.Key.Slot, Generation: d.Key.Generation})
		return
	}
	if d.Granted > 0 {
		p := g.onDevice(s.devices[d.GPU])
		if p == nil {
			return // its GPU is not the guest's any more
		}
		pl.GPU, pl.Number = p.index, d.GPU
	}
	g.answers.add(&pl, false)
}

// tellPlaces tells a guest's process what was decided about its contexts and spare executors.
func (s *Service) tellPlaces(g *guest) {
	for all := g.answers.take(); len(all) > 0; all = g.answers.take() {
		select {
		case <-g.gone:
			return
		default:
		}
		for _, due := range all {
			m, err := ipc.NewMessage(due.kind, due.body)
			if err == nil {
				err = g.conn.Send(m)
			}
			if err == nil {
				continue
			}
			s.log.Debug("tell a guest what was decided", "guest", g.spec.Name, "context", due.slot, "err", err)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				due.again() // its process is stopped, or slow
			}
		}
	}
}
