package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/statefile"
	"vgpud/mediator/tasks"
	"vgpud/mediator/vgpu/abi"
)

// records is a log that only says that something was logged.
type records struct {
	slog.Handler
	logged chan struct{}
}

func (records) Enabled(context.Context, slog.Level) bool { return true }

func (r records) Handle(context.Context, slog.Record) error {
	select {
	case r.logged <- struct{}{}:
	default:
	}
	return nil
}

// TestAnswersWaitForTheirGuestAlone: a guest's process that reads nothing is waited for by nobody, and is
// told the newest answer once it reads.
func TestAnswersWaitForTheirGuestAlone(t *testing.T) {
	ours, file, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ipc.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // until it has no room
		err = ours.Send(ipc.Message{Kind: ipc.KindLog})
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	log := records{slog.DiscardHandler, make(chan struct{}, 1)}
	s := &Service{log: slog.New(log)}
	g := &guest{spec: ipc.Spec{Name: "a"}, conn: ours, gone: make(chan struct{})}
	g.answers.tell = func() { s.wg.Go(func() { s.tellPlaces(g) }) }
	const last = 10_000
	for i := range uint32(last) {
		s.tellPlace(g, tasks.Decision{Key: tasks.Key{Guest: "a", Slot: 3, Generation: i}, Reason: abi.WaitMemory})
	}
	<-log.logged // an answer found no room
	s.tellPlace(g, tasks.Decision{Key: tasks.Key{Guest: "a", Slot: 3, Generation: last}, Code: abi.ErrorLimit})
	places := 0
	for pl := (ipc.Place{}); pl.Generation != last || pl.Code == 0; {
		m, err := theirs.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind != ipc.KindPlace {
			continue
		}
		if places++; places > 3 {
			t.Fatal("it is told of contexts that are gone")
		}
		if err := m.Decode(&pl); err != nil {
			t.Fatal(err)
		}
	}
	close(g.gone)
	s.wg.Wait()
	if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
		t.Error(err)
	}
}

// TestFailedAnswerIsKept: an answer that could not be told is told later, unless there is a newer one.
func TestFailedAnswerIsKept(t *testing.T) {
	var a answers
	first, second := &ipc.Place{Slot: 1, Granted: 1}, &ipc.Place{Slot: 1, Generation: 1}
	a.add(first, true)
	if all := a.take(); len(all) != 1 || all[0].body != first {
		t.Errorf("due: %+v", all)
	}
	a.add(second, false)
	a.add(first, true)
	if all := a.take(); len(all) != 1 || all[0].body != second {
		t.Errorf("due: %+v", all)
	}
}

// TestLendsAreBounded: a guest's process that has spare executors come and go, and reads nothing, makes
// the daemon keep no more than what is due about those that are there.
func TestLendsAreBounded(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0")
	d.floating("a")
	g := d.guest("a")
	g.answers.mu.Lock()
	g.answers.telling = true // as while its process does not read
	g.answers.mu.Unlock()
	send := func(kind ipc.Kind, number uint64) {
		m, err := ipc.NewMessage(kind, ipc.Spare{Number: number})
		if err != nil {
			t.Fatal(err)
		}
		d.service.handleSpare(g, &m)
	}
	lent := 0
	const numbers = 100_000 // of real executors, which are counted from 1
	for n := range uint64(1000) {
		send(ipc.KindSpare, numbers+n)
		d.service.tasks.locked(func(tt *tasks.Table) { lent, _ = tt.Lent(0) })
		if lent != 1 {
			t.Fatalf("%d spare executors have memory", lent)
		}
		send(ipc.KindSpareGone, numbers+n)
	}
	send(ipc.KindSpare, 2*numbers)
	g.answers.mu.Lock()
	due := slices.Clone(g.answers.lends)
	g.answers.mu.Unlock()
	if len(due) == 0 || len(due) > maxLends || due[len(due)-1] != (ipc.Lend{Number: 2 * numbers, Lent: true}) {
		t.Errorf("%d answers are due, the last %+v", len(due), due[max(0, len(due)-1):])
	}
}

// TestPendingIsReserved: what a guest was admitted for is granted to no context while the guest is still
// being created.
func TestPendingIsReserved(t *testing.T) {
	d := startDaemonOf(t, runDir(t), roomyGPU{}, statefile.Files{}, "gpu0", "gpu1")
	s := d.service
	s.admission.Lock()
	defer s.admission.Unlock()
	for i, spec := range []api.VMSpec{
		{Name: "floats", MemoryLimitBytes: 1 << 20, Float: true},
		{Name: "plain", MemoryLimitBytes: 40 << 20, Guarantee: 0.5},
	} {
		s.pending[spec.Name] = &pendingVM{spec: spec, device: s.devices[i]}
		defer delete(s.pending, spec.Name)
	}
	gpus := s.taskGPUs()
	if gpus[0].Pinned != 0 || gpus[1].Pinned != 40<<20 || gpus[1].PinnedGuarantee != 0.5 {
		t.Errorf("reserved: %+v", gpus)
	}
}

// TestWholeLimitIsKnownAgain: a context that was granted less than it asks for, since its guest's limit was
// lowered, is the one that was saved.
func TestWholeLimitIsKnownAgain(t *testing.T) {
	saved := savedTask{Task: ipc.Task{Slot: 2, Generation: 7, Memory: 60, Whole: true}}
	if !saved.is(ipc.Task{Slot: 2, Generation: 7, Memory: 100, Whole: true}) {
		t.Error("a context is not known any more")
	}
	for _, other := range []ipc.Task{{Slot: 2, Generation: 8, Memory: 60, Whole: true}, {Slot: 2, Generation: 7, Memory: 60}, {Slot: 2, Generation: 7, Memory: 100}} {
		if saved.is(other) {
			t.Errorf("%+v is taken for %+v", other, saved.Task)
		}
	}
}
