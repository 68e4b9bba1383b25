package vm

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// roleVariable makes this binary another process: an executor or a client.
const roleVariable = "VGPUD_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "linger":
		err = linger()
	case "hang":
		err = hang()
	case "knock":
		err = knock()
	case "loud":
		err = loud()
	case "stuck":
		err = stuck()
	case "deaf":
		err = deaf()
	case "talk":
		err = talk()
	case "move":
		err = moving()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// linger is an executor that confirms every request and goes on after its connection ends.
func linger() error {
	conn, err := ipc.FromFile(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	m, err := conn.Receive()
	for err == nil && m.Kind != ipc.KindSetup {
		if m.Kind == ipc.KindAhead {
			if err := conn.Send(ipc.Message{Kind: ipc.KindAhead}); err != nil {
				return err
			}
		}
		m, err = conn.Receive()
	}
	if err != nil {
		return err
	}
	var s ipc.Setup
	if err := m.Decode(&s); err != nil {
		return err
	}
	page, err := ipc.OpenControlPage(m.Files[1])
	if err != nil {
		return err
	}
	page.Context(s.Slot).Reset(os.Getpid())
	page.Context(s.Slot).SetReady(uint16(s.Slot))
	if err := conn.Send(ipc.Message{Kind: ipc.KindReady}); err != nil {
		return err
	}
	for err == nil {
		if m, err = conn.Receive(); err == nil && m.ID != 0 {
			err = conn.Send(ipc.Message{Kind: m.Kind, ID: m.ID})
		}
	}
	if err := conn.Close(); err != nil {
		return err
	}
	for { // until it is killed
		time.Sleep(time.Hour)
	}
}

// testExecutors returns the backend of a device that no guest is attached to.
func testExecutors(t *testing.T) *executors {
	t.Helper()
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	b := newExecutors(ipc.Spec{}, page, func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=linger")
		return cmd
	}, clock.Real{}, slog.New(slog.DiscardHandler))
	dev, err := vgpu.New(vgpu.Config{SharedBytes: abi.MinSharedBytes}, b, b.log)
	if err != nil {
		t.Fatal(err)
	}
	b.use(dev)
	b.dev.Describe()
	t.Cleanup(func() {
		b.Reset()
		b.wait()
		if err := errors.Join(b.dev.Close(), page.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// create creates a context and waits for an executor with a PID other than not.
func create(t *testing.T, b *executors, ref vgpu.ContextRef, not int) (pid int) {
	t.Helper()
	b.CreateContext(vgpu.Context{ContextRef: ref})
	slot := b.page.Context(ref.Slot)
	await(t, "an executor for the context", func() bool { return slot.State() == ipc.ContextReady && slot.PID() != not })
	return slot.PID()
}

func exists(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}

// TestSetupHasRings checks that an executor learns which part of BAR2 is for rings, if the guest's
// driver keeps to it.
func TestSetupHasRings(t *testing.T) {
	b := testExecutors(t)
	header, rings := abi.HeaderBytes(b.dev.Config().Channels), b.dev.Config().RingsBytes()
	for slot, c := range []struct {
		version abi.Version
		rings   int
	}{{abi.Version1_0, 0}, {abi.Version1_1, rings}} {
		b.begin(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: slot, Generation: 1}, Version: c.version})
		if s := b.process(slot).setup(); s.Slot != slot || s.Header != header || s.Rings != c.rings || rings == 0 {
			t.Errorf("version %v: %+v, want a header of %d bytes and %d of rings", c.version, s, header, c.rings)
		}
	}
}

// TestResetWaitsForDestroyedContexts checks that after a reset no executor touches BAR2, nor the
// control page's slot of its successor.
func TestResetWaitsForDestroyedContexts(t *testing.T) {
	b := testExecutors(t)
	ref := vgpu.ContextRef{Slot: 2, Generation: 1}
	pid := create(t, b, ref, 0)
	held, ok := b.page.Claim(2, &ipc.Launch{}) // as the executor would
	if !ok || !held.Grant() {
		t.Fatal("no stub")
	}
	b.DestroyContext(ref)
	b.Reset()
	if exists(pid) {
		t.Fatalf("executor %d of a destroyed context outlives a reset", pid)
	}
	if s := held.State(); s != slotstate.Done {
		t.Errorf("the launch that the executor had when it was ended is %v", s)
	}
	if s := b.page.Context(2).State(); s != ipc.ContextNone {
		t.Errorf("slot is %v after a reset", s)
	}
	// Its successor in the slot has a group to account by.
	create(t, b, vgpu.ContextRef{Slot: 2, Generation: 2}, pid)
	if g, ok := b.page.Context(2).Group(); g != 2 || !ok {
		t.Errorf("group %d, %v", g, ok)
	}
}

func TestContextsOfOneSlotFollowEachOther(t *testing.T) {
	b := testExecutors(t)
	ref := vgpu.ContextRef{Slot: 0, Generation: 1}
	first := create(t, b, ref, 0)
	b.DestroyContext(ref)
	second := create(t, b, vgpu.ContextRef{Slot: 0, Generation: 2}, first)
	if exists(first) {
		t.Errorf("executor %d began before %d had ended", second, first)
	}
	// One that is stopped before its start is never started.
	b.ResetContext(vgpu.Context{ContextRef: vgpu.ContextRef{Slot: 0, Generation: 3}})
	b.Reset()
	if exists(second) || b.page.Context(0).State() != ipc.ContextNone {
		t.Errorf("executor %d outlives a reset", second)
	}
}

// TestExecutorEnds sends messages as an executor and then closes the connection.
func TestExecutorEnds(t *testing.T) {
	ready := ipc.Message{Kind: ipc.KindReady}
	fault := func(code abi.ErrorCode) []byte { return fmt.Appendf(nil, `{"code": %d}`, code) }
	for name, c := range map[string]struct {
		sends []ipc.Message
		want  abi.ErrorCode
	}{
		"nothing":            {nil, abi.ErrorExecutorStart},
		"no context":         {[]ipc.Message{{Kind: ipc.KindReady, Error: "no GPU"}}, abi.ErrorExecutorStart},
		"no context, why":    {[]ipc.Message{{Kind: ipc.KindReady, Error: "no GPU", Body: fault(abi.ErrorInternal)}}, abi.ErrorExecutorStart},
		"no GPU any more":    {[]ipc.Message{{Kind: ipc.KindReady, Error: "no GPU", Body: fault(abi.ErrorDeviceLost)}}, abi.ErrorDeviceLost},
		"no memory for it":   {[]ipc.Message{{Kind: ipc.KindReady, Error: "no memory", Body: fault(abi.ErrorLimit)}}, abi.ErrorLimit},
		"ready":              {[]ipc.Message{ready}, abi.ErrorExecutorLost},
		"an unasked answer":  {[]ipc.Message{ready, {Kind: ipc.KindOpen, ID: 99}}, abi.ErrorExecutorLost},
		"something unknown":  {[]ipc.Message{ready, {Kind: "unknown"}}, abi.ErrorInternal},
		"a file":             {[]ipc.Message{ready, {Kind: ipc.KindReady, Files: []*os.File{os.Stdin}}}, abi.ErrorInternal},
		"a fault of no sort": {[]ipc.Message{ready, {Kind: ipc.KindFault, Body: []byte("7")}}, abi.ErrorInternal},
		"a failure likewise": {[]ipc.Message{ready, {Kind: ipc.KindFailed, Body: []byte("7")}}, abi.ErrorInternal},
	} {
		t.Run(name, func(t *testing.T) {
			b := testExecutors(t)
			p := newProcess(b, vgpu.ContextRef{Slot: 1, Generation: 1})
			ours, end, err := ipc.Pair()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := ipc.FromFile(end)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range c.sends {
				if err := theirs.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			code, err := p.receive(ours)
			if code != c.want || err == nil {
				t.Errorf("code %v, error %v; want code %v", code, err, c.want)
			}
			if err := ours.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	b := testExecutors(t)
	var none *process
	if err := none.request(ipc.KindOpen, ipc.Channel{}, nil); !errors.Is(err, errNoExecutor) {
		t.Errorf("ask no executor: %v", err)
	}
	p := newProcess(b, vgpu.ContextRef{})
	ours, end, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ipc.FromFile(end)
	if err != nil {
		t.Fatal(err)
	}
	p.conn = ours
	var got [3]error
	for i := range got {
		got[i] = io.ErrNoProgress
		if err := p.request(ipc.KindShut, ipc.Channel{Index: i}, func(err error) { got[i] = err }); err != nil {
			t.Fatal(err)
		}
	}
	ids := make([]uint64, len(got))
	for i := range ids {
		m, err := theirs.Receive()
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = m.ID
	}
	p.reply(ipc.Message{ID: ids[1], Error: "not open"})
	p.reply(ipc.Message{ID: ids[0]})
	p.reply(ipc.Message{ID: ids[0], Error: "again"}) // is pending once
	p.closeConn(ours)
	if got[0] != nil || got[1] == nil || got[1].Error() != "not open" || !errors.Is(got[2], errNoExecutor) {
		t.Errorf("answers: %v", got)
	}
	if err := p.request(ipc.KindShut, ipc.Channel{}, nil); !errors.Is(err, errNoExecutor) {
		t.Errorf("ask after the end: %v", err)
	}
	if err := theirs.Close(); err != nil {
		t.Error(err)
	}
}
