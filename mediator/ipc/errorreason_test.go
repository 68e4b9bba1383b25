package ipc

import (
	"math"
	"testing"
)

// TestErrorReasons: errors are counted by reason. Those without one, as executors of an older version
// count them, are others; and whatever the words are, no count overflows or is more than there were.
func TestErrorReasons(t *testing.T) {
	serve, exec := newPages(t)
	slot := exec.Context(2)
	fail := func(r ErrorReason) {
		slot.AddErrorReason(r)
		slot.AddError()
	}
	fail(ErrorMemory)
	fail(ErrorMemory)
	slot.AddErrorReason(ErrorFault)
	slot.AddFinished(1, 0, true)
	fail(ErrorOther)
	slot.AddError()
	seen := serve.Context(2).Counters()
	want := [ErrorReasons]uint64{ErrorOther: 2, ErrorMemory: 2, ErrorFault: 1}
	if seen.Errors != 5 || seen.ErrorsBy != want {
		t.Errorf("%d errors, %v, want 5, %v", seen.Errors, seen.ErrorsBy, want)
	}
	if sum := seen.Add(seen).ErrorsBy; sum[ErrorMemory] != 4 || sum[ErrorOther] != 4 {
		t.Errorf("twice as many are %v", sum)
	}
	if most := seen.Max(Counters{ErrorsBy: [ErrorReasons]uint64{ErrorFault: 9}}).ErrorsBy; most[ErrorFault] != 9 || most[ErrorMemory] != 2 {
		t.Errorf("the larger ones are %v", most)
	}
	words := &exec.l.contexts[2].reasons
	words[ErrorMemory-1].Store(math.MaxUint32)
	fail(ErrorMemory)
	if got := serve.Context(2).Counters().ErrorsBy; got[ErrorMemory] != math.MaxUint32 || got[ErrorOther] != 0 {
		t.Errorf("with a full word: %v", got)
	}
	slot.Free()
	slot.Reset(1)
	if got := serve.Context(2).Counters().ErrorsBy; got[ErrorFault] != 1 {
		t.Errorf("the next executor begins with %v", got)
	}
}
