package vgpu

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/vgpu/abi"
)

// floating returns the registers of a guest that floats, negotiated as version v.
func floating(tb testing.TB, v abi.Version) *registers {
	tb.Helper()
	cfg := testConfig(tb)
	cfg.Features |= abi.FeatureFloating
	r := newRegisters(cfg)
	r.set(abi.RegSelectVersion, uint32(v))
	r.set(abi.RegAcceptFeaturesLo, uint32(abi.FeatureContexts|abi.FeatureFloating))
	return r
}

// float creates a context that floats in a slot, and returns why that was refused.
func (r *registers) float(slot int, w abi.TaskRequestWords) abi.ErrorCode {
	r.set(abi.RegError, 0)
	for i, v := range w {
		r.set(abi.TaskRow(slot, 4*i), v)
	}
	r.set(abi.ContextSlot(slot, abi.ContextFlags), uint32(abi.ContextFloats))
	r.set(abi.ContextSlot(slot, abi.ContextControl), uint32(abi.ControlCreate))
	return abi.ErrorCode(r.get(abi.RegError))
}

// row returns what the host says in a row of the task table.
func (r *registers) row(slot int) (w [6]uint32) {
	for i, reg := range []int{abi.TaskStatus, abi.TaskReason, abi.TaskGPU, abi.TaskGrantedLo, abi.TaskGrantedHi, abi.TaskWaitedLo} {
		w[i] = r.get(abi.TaskRow(slot, reg))
	}
	return w
}

// TestFloatingContext follows a context that floats from its request to its end.
func TestFloatingContext(t *testing.T) {
	d, r := Device{}, floating(t, abi.Newest)
	d.regs = r
	q := abi.TaskRequest{Memory: 3 << 32, Blocks: 80, Threads: 256}
	if code := r.float(1, q.Encode()); code != abi.ErrorNone {
		t.Fatal(code)
	}
	ref := ContextRef{1, 1}
	want := []action{{kind: createContext, context: Context{
		ContextRef: ref, Version: abi.Newest, Features: abi.FeatureContexts | abi.FeatureFloating, Floats: true, Task: q,
	}}}
	if diff := cmp.Diff(want, r.take(), cmp.AllowUnexported(action{})); diff != "" {
		t.Fatalf("actions (-want +got):\n%s", diff)
	}
	check := func(what string, want [6]uint32) {
		t.Helper()
		if diff := cmp.Diff(want, r.row(1)); diff != "" {
			t.Errorf("%s: STATUS, REASON, GPU, GRANTED, WAITED_LO (-want +got):\n%s", what, diff)
		}
	}
	check("created", [6]uint32{1, 0, 0, 0, 0, 0})
	if code := r.float(1, q.Encode()); code != abi.ErrorBadState {
		t.Errorf("begun twice: %v", code)
	}
	d.ContextWaits(ref, abi.WaitMemory)
	check("waits", [6]uint32{1, 1, 0, 0, 0, 0})
	d.ContextPlaced(ContextRef{1, 7}, 2, 1, 1) // of another generation
	d.ContextPlaced(ContextRef{0, 0}, 2, 1, 1) // of another context
	check("waits on", [6]uint32{1, 1, 0, 0, 0, 0})
	d.ContextPlaced(ref, 2, 3<<32+5, 7*time.Microsecond)
	placed := [6]uint32{2, 0, 3, 5, 3, 7000}
	check("placed", placed)
	r.contextReady(ref)
	d.ContextWaits(ref, abi.WaitQueue)
	check("ready", placed)
	r.set(abi.ContextSlot(1, abi.ContextControl), uint32(abi.ControlReset))
	check("reset", [6]uint32{1, 0, 0, 0, 0, 0})
	if actions := r.take(); len(actions) != 1 || actions[0].kind != resetContext || actions[0].context.Task != q {
		t.Errorf("a reset asks for %+v", actions)
	}
	r.set(abi.ContextSlot(1, abi.ContextControl), uint32(abi.ControlDestroy))
	r.contextGone(ContextRef{1, 2})
	check("gone", [6]uint32{})
	if got := r.get(abi.TaskRow(1, abi.TaskMemoryHi)); got != 0 {
		t.Errorf("the next context finds a request for %d · 2³² bytes", got)
	}
}

// TestRefusedFloats lists requests that never reach the backend.
func TestRefusedFloats(t *testing.T) {
	words := func(q abi.TaskRequest) abi.TaskRequestWords { return q.Encode() }
	for _, c := range []struct {
		name string
		with *registers
		w    abi.TaskRequestWords
		want abi.ErrorCode
	}{
		{"no memory", floating(t, abi.Newest), words(abi.TaskRequest{}), abi.ErrorBadRequest},
		{"2^64-1 bytes", floating(t, abi.Newest), words(abi.TaskRequest{Memory: 1<<64 - 1}), abi.ErrorNoRoom},
		{"over the guest's limit", floating(t, abi.Newest), words(abi.TaskRequest{Memory: 5<<32 + 1}), abi.ErrorLimit},
		{"blocks of 1025 threads", floating(t, abi.Newest), words(abi.TaskRequest{Memory: 1, Blocks: 1, Threads: 1025}), abi.ErrorBadRequest},
		{"blocks of no threads", floating(t, abi.Newest), words(abi.TaskRequest{Memory: 1, Blocks: 1}), abi.ErrorBadRequest},
		{"flags", floating(t, abi.Newest), abi.TaskRequestWords{1, 0, 0, 0, 2}, abi.ErrorBadFlags},
		{"a driver of 1.2", floating(t, abi.Version1_2), words(abi.TaskRequest{Memory: 1}), abi.ErrorBadFlags},
		{"a guest that does not float", ready(t), words(abi.TaskRequest{Memory: 1}), abi.ErrorBadFlags},
	} {
		if got := c.with.float(1, c.w); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if actions := c.with.take(); len(actions) != 0 {
			t.Errorf("%s: %+v", c.name, actions)
		}
	}
}

// TestPlainContextOfFloatingGuest is a driver of version 1.2 in a guest that floats: it is served
// as before.
func TestPlainContextOfFloatingGuest(t *testing.T) {
	r := floating(t, abi.Version1_2)
	r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	if actions := r.take(); len(actions) != 1 || actions[0].context.Floats {
		t.Errorf("actions: %+v", actions)
	}
	if got := r.row(0); got != ([6]uint32{}) {
		t.Errorf("row of a context that does not float: %v", got)
	}
}

// TestContextWithoutRequest is a context without the flag of a driver that knows contexts that float:
// it asks for all that its guest may have, whatever is in its row.
func TestContextWithoutRequest(t *testing.T) {
	r := floating(t, abi.Newest)
	r.set(abi.TaskRow(0, abi.TaskMemoryLo), 7)
	r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	want := abi.TaskRequest{Memory: 5 << 32}
	if actions := r.take(); len(actions) != 1 || !actions[0].context.Floats || actions[0].context.Task != want {
		t.Errorf("actions: %+v", actions)
	}
	if got := r.row(0); got[0] != uint32(abi.TaskWaits) {
		t.Errorf("its row is %v", got)
	}
}
