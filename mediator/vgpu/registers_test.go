package vgpu

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/mediator/vgpu/abi"
)

// testConfig is small, so that tables fill up soon.
func testConfig(tb testing.TB) Config {
	tb.Helper()
	cfg, err := Config{
		SharedBytes: abi.MinSharedBytes, Contexts: 3, Channels: 5, Vectors: 4, MaxRingEntries: 1024,
		MemoryBytes: 5 << 32, Features: abi.FeatureContexts | abi.FeatureEvents,
		Leaving: func() (latency, suspension time.Duration) { return 75 * time.Microsecond, 360 * time.Microsecond },
		UUID:    [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	}.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func (r *registers) get(off int) uint32 {
	var b [4]byte
	r.read(uint64(off), b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (r *registers) set(off int, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	r.write(uint64(off), b[:])
}

// take empties actions, as Device does.
func (r *registers) take() []action {
	t := append([]action(nil), r.actions...)
	r.actions, r.dirty = r.actions[:0], dirty{}
	return t
}

// ready negotiates and makes context 0 ready.
func ready(tb testing.TB) *registers {
	tb.Helper()
	r := newRegisters(testConfig(tb))
	r.set(abi.RegSelectVersion, uint32(abi.Newest))
	r.set(abi.RegAcceptFeaturesLo, uint32(abi.FeatureContexts))
	r.set(abi.ContextSlot(0, abi.ContextTag), 77)
	r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	r.contextReady(ContextRef{0, 1})
	if got := abi.ContextState(r.get(abi.ContextSlot(0, abi.ContextStatus))); got != abi.ContextReady {
		tb.Fatalf("context 0 is %v (error %v)", got, abi.ErrorCode(r.get(abi.RegError)))
	}
	r.take()
	return r
}

// channelSetup is what a guest writes before create.
type channelSetup struct {
	context            uint32
	sub, comp          uint64
	subN, compN        uint32
	vector, prio, flag uint32
}

// base is where the test devices' shared memory may be used.
var base = uint64(abi.HeaderBytes(5))

func goodChannel() channelSetup {
	return channelSetup{sub: base, subN: 128, comp: base + 2*abi.PageSize, compN: 256, vector: 2, prio: 0xfffffffe}
}

func (s channelSetup) create(r *registers, slot int) abi.ErrorCode {
	for _, w := range []struct {
		reg int
		v   uint32
	}{
		{abi.ChannelContext, s.context},
		{abi.ChannelSubmissionLo, uint32(s.sub)}, {abi.ChannelSubmissionHi, uint32(s.sub >> 32)},
		{abi.ChannelSubmissionEntries, s.subN},
		{abi.ChannelCompletionLo, uint32(s.comp)}, {abi.ChannelCompletionHi, uint32(s.comp >> 32)},
		{abi.ChannelCompletionEntries, s.compN},
		{abi.ChannelVector, s.vector}, {abi.ChannelPriority, s.prio}, {abi.ChannelFlags, s.flag},
		{abi.RegError - abi.ChannelSlot(slot, 0), 0},
		{abi.ChannelControl, uint32(abi.ControlCreate)},
	} {
		r.set(abi.ChannelSlot(slot, w.reg), w.v)
	}
	return abi.ErrorCode(r.get(abi.RegError))
}

func TestIdentity(t *testing.T) {
	r := newRegisters(testConfig(t))
	for _, c := range []struct {
		name string
		off  int
		want uint32
	}{
		{"MAGIC", abi.RegMagic, abi.Magic},
		{"VERSION", abi.RegVersion, uint32(abi.Newest)},
		{"STATUS", abi.RegStatus, uint32(abi.DeviceReady)},
		{"CONTEXTS", abi.RegContexts, 3},
		{"CHANNELS", abi.RegChannels, 5},
		{"SHARED_BYTES_LO", abi.RegSharedBytesLo, abi.MinSharedBytes},
		{"HEADER_BYTES", abi.RegHeaderBytes, 6 * abi.PageSize},
		{"RINGS_BYTES", abi.RegRingsBytes, 5 * 2 * 1024 * abi.EntrySize},
		{"MEMORY_BYTES_HI", abi.RegMemoryBytesHi, 5},
		{"UUID", abi.RegUUID, 0x04030201},
		{"UUID's end", abi.RegUUID + 12, 0x100f0e0d},
		{"the latency", abi.RegLatencyNanos, 75_000},
		{"the hardware's suspension", abi.RegSuspensionNanos, 360_000},
		{"unlisted", 0xffc, 0},
		{"slot 3 of 3", abi.ContextSlot(3, abi.ContextStatus), 0},
	} {
		if got := r.get(c.off); got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, got, c.want)
		}
	}
	var b [8]byte
	r.read(abi.RegMagic, b[:])
	if got, want := binary.LittleEndian.Uint64(b[:]), uint64(abi.Newest)<<32|abi.Magic; got != want {
		t.Errorf("8 bytes at MAGIC = %#x, want %#x", got, want)
	}
}

func TestOddAccesses(t *testing.T) {
	r := newRegisters(testConfig(t))
	for _, c := range []struct{ off, n int }{{0, 1}, {0, 2}, {1, 4}, {4, 8}, {0, 3}, {0, 16}, {abi.BAR0Size - 4, 8}, {0, 0}} {
		b := make([]byte, c.n)
		r.write(uint64(c.off), b)
		r.read(uint64(c.off), b)
		for i, v := range b {
			if v != 0xff {
				t.Errorf("read of %d bytes at %#x: byte %d is %#x, want ff", c.n, c.off, i, v)
			}
		}
	}
	if r.count.badAccesses != 16 {
		t.Errorf("%d bad accesses counted, want 16", r.count.badAccesses)
	}
}

func TestNegotiation(t *testing.T) {
	r := newRegisters(testConfig(t))
	create := func() abi.ErrorCode {
		r.set(abi.RegError, 0)
		r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
		return abi.ErrorCode(r.get(abi.RegError))
	}
	if got := create(); got != abi.ErrorNotNegotiated {
		t.Errorf("create before a version: %v", got)
	}
	r.set(abi.RegSelectVersion, uint32(abi.Newest)+1)
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadVersion || r.get(abi.RegSelectVersion) != 0 {
		t.Errorf("unknown version: %v, selected %#x", got, r.get(abi.RegSelectVersion))
	}
	if got := r.get(abi.RegErrorOffset); got != abi.RegSelectVersion {
		t.Errorf("error at %#x, want at SELECT_VERSION", got)
	}
	r.set(abi.RegSelectVersion, uint32(abi.Newest))
	r.set(abi.RegAcceptFeaturesLo, uint32(abi.FeatureCubin))
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadFeatures || r.get(abi.RegAcceptFeaturesLo) != 0 {
		t.Errorf("feature not offered: %v", got)
	}
	if got := create(); got != abi.ErrorNone {
		t.Errorf("create after a version: %v", got)
	}
	r.set(abi.RegAcceptFeaturesLo, uint32(abi.FeatureEvents))
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadFeatures {
		t.Errorf("features changed with a context there: %v", got)
	}
	// Without the feature there is one context only.
	r.set(abi.RegError, 0)
	r.set(abi.ContextSlot(1, abi.ContextControl), uint32(abi.ControlCreate))
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorLimit {
		t.Errorf("second context without the feature: %v", got)
	}
}

// ringsEnd is where the test devices' rings end.
var ringsEnd = base + 5*2*1024*abi.EntrySize

func TestChannelChecks(t *testing.T) {
	end := ringsEnd
	for _, c := range []struct {
		name   string
		change func(*channelSetup)
		want   abi.ErrorCode
	}{
		{"good", func(*channelSetup) {}, abi.ErrorNone},
		{"no vector", func(s *channelSetup) { s.vector = abi.NoVector }, abi.ErrorNone},
		{"last page", func(s *channelSetup) { s.comp = end - 4*abi.PageSize }, abi.ErrorNone},
		{"no such context", func(s *channelSetup) { s.context = 3 }, abi.ErrorBadContext},
		{"free context", func(s *channelSetup) { s.context = 1 }, abi.ErrorBadContext},
		{"huge context", func(s *channelSetup) { s.context = 1 << 31 }, abi.ErrorBadContext},
		{"vector", func(s *channelSetup) { s.vector = 4 }, abi.ErrorBadVector},
		{"flags", func(s *channelSetup) { s.flag = 1 }, abi.ErrorBadFlags},
		{"no entries", func(s *channelSetup) { s.subN = 0 }, abi.ErrorRingEntries},
		{"few entries", func(s *channelSetup) { s.subN = 64 }, abi.ErrorRingEntries},
		{"many entries", func(s *channelSetup) { s.compN = 2048 }, abi.ErrorRingEntries},
		{"odd entries", func(s *channelSetup) { s.compN = 200 }, abi.ErrorRingEntries},
		{"alignment", func(s *channelSetup) { s.sub += 64 }, abi.ErrorRingAlignment},
		{"in the header", func(s *channelSetup) { s.sub = base - abi.PageSize }, abi.ErrorRingOutside},
		{"at 0", func(s *channelSetup) { s.sub = 0 }, abi.ErrorRingOutside},
		{"among windows", func(s *channelSetup) { s.sub = abi.MinSharedBytes - 2*abi.PageSize }, abi.ErrorRingOutside},
		{"past the end", func(s *channelSetup) { s.comp = end - 3*abi.PageSize }, abi.ErrorRingOutside},
		{"at the end", func(s *channelSetup) { s.comp = end }, abi.ErrorRingOutside},
		{"far away", func(s *channelSetup) { s.comp = ^uint64(0) - abi.PageSize + 1 }, abi.ErrorRingOutside},
		{"each other", func(s *channelSetup) { s.comp = s.sub + abi.PageSize }, abi.ErrorRingOverlap},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ready(t)
			s := goodChannel()
			c.change(&s)
			if got := s.create(r, 4); got != c.want {
				t.Errorf("create: %v, want %v", got, c.want)
			}
			wantState, wantActions := abi.ChannelFree, 0
			if c.want == abi.ErrorNone {
				wantState, wantActions = abi.ChannelOpening, 1
			}
			if got := abi.ChannelState(r.get(abi.ChannelSlot(4, abi.ChannelStatus))); got != wantState {
				t.Errorf("state %v, want %v", got, wantState)
			}
			if got := abi.ErrorCode(r.get(abi.ChannelSlot(4, abi.ChannelError))); got != c.want {
				t.Errorf("the slot's error is %v, want %v", got, c.want)
			}
			if got := len(r.take()); got != wantActions {
				t.Errorf("%d actions, want %d", got, wantActions)
			}
		})
	}
}

// TestOldDriversRings checks that a driver of version 1.0 may place its rings anywhere after the
// header, even after it had selected a newer version.
func TestOldDriversRings(t *testing.T) {
	const end = abi.MinSharedBytes
	r := ready(t)
	r.set(abi.RegSelectVersion, uint32(abi.Version1_0))
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadState {
		t.Errorf("another version with a context there: %v", got)
	}
	r.set(abi.RegReset, abi.ResetMagic)
	r.set(abi.RegSelectVersion, uint32(abi.Version1_0))
	r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlCreate))
	r.contextReady(ContextRef{0, 2})
	if actions := r.take(); len(actions) == 0 || actions[len(actions)-1].context.Version != abi.Version1_0 {
		t.Errorf("the backend was told: %+v", actions)
	}
	for i, c := range []struct {
		comp uint64
		want abi.ErrorCode
	}{
		{ringsEnd, abi.ErrorNone},
		{end - 4*abi.PageSize, abi.ErrorNone},
		{base - abi.PageSize, abi.ErrorRingOutside},
		{end - 3*abi.PageSize, abi.ErrorRingOutside},
		{end, abi.ErrorRingOutside},
	} {
		s := goodChannel()
		s.sub += uint64(i) * 2 * abi.PageSize
		s.comp = c.comp
		if got := s.create(r, i); got != c.want {
			t.Errorf("ring at %#x: %v, want %v", c.comp, got, c.want)
		}
	}
}

func TestChannelLife(t *testing.T) {
	r := ready(t)
	if err := goodChannel().create(r, 1); err != abi.ErrorNone {
		t.Fatal(err)
	}
	want := []action{{kind: openChannel, channel: Channel{
		ChannelRef: ChannelRef{1, 1}, Context: ContextRef{0, 1}, Page: abi.ChannelPage(1),
		Submission: Ring{base, 128}, Completion: Ring{base + 2*abi.PageSize, 256}, Vector: 2, Priority: -2,
	}}}
	if diff := cmp.Diff(want, r.take(), cmp.AllowUnexported(action{})); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	overlapping := goodChannel()
	overlapping.sub = base + 8*abi.PageSize
	overlapping.comp = base + 4*abi.PageSize // the last two pages of channel 1's completions
	if err := overlapping.create(r, 2); err != abi.ErrorRingOverlap {
		t.Errorf("a ring over another channel's: %v", err)
	}
	r.set(abi.Doorbell(1), 0)
	r.set(abi.Doorbell(2), 0)
	r.set(abi.Doorbell(200), 0)
	if actions := r.take(); len(actions) != 1 || actions[0].kind != kick || actions[0].channel.ChannelRef != (ChannelRef{1, 1}) {
		t.Errorf("after three doorbells, one of them good: %+v", actions)
	}
	r.channelReady(ChannelRef{1, 1})
	r.set(abi.ChannelSlot(1, abi.ChannelVector), 3)
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadState {
		t.Errorf("register of an open channel written: %v", got)
	}
	r.set(abi.ChannelSlot(1, abi.ChannelControl), uint32(abi.ControlDestroy))
	if err := goodChannel().create(r, 2); err != abi.ErrorRingOverlap {
		t.Errorf("rings of a closing channel taken: %v", err)
	}
	r.channelClosed(ChannelRef{1, 9}) // another life
	if got := abi.ChannelState(r.get(abi.ChannelSlot(1, abi.ChannelStatus))); got != abi.ChannelClosing {
		t.Errorf("channel is %v, want closing", got)
	}
	r.channelClosed(ChannelRef{1, 1})
	if err := goodChannel().create(r, 1); err != abi.ErrorNone {
		t.Errorf("create again: %v", err)
	}
}

// TestGPUComesBack checks that contexts lost with the GPU can be reset, and that the device's
// status follows the last report.
func TestGPUComesBack(t *testing.T) {
	r := ready(t)
	lost := func(when string, want bool) {
		t.Helper()
		if got := abi.DeviceStatus(r.get(abi.RegStatus))&abi.DeviceLost != 0; got != want {
			t.Errorf("after %s the GPU is gone: %v, want %v", when, got, want)
		}
	}
	control := func(slot int, c abi.Control) actionKind {
		t.Helper()
		r.take()
		r.set(abi.ContextSlot(slot, abi.ContextControl), uint32(c))
		actions := r.take()
		if err := abi.ErrorCode(r.get(abi.RegError)); err != abi.ErrorNone || len(actions) != 1 {
			t.Fatalf("control %v of slot %d: %v, %+v", c, slot, err, actions)
		}
		return actions[0].kind
	}
	lost("the start", false)
	r.contextFaulted(ContextRef{0, 1}, abi.ErrorDeviceLost)
	lost("a context's end", true)
	if kind := control(1, abi.ControlCreate); kind != createContext {
		t.Errorf("create is %v", kind)
	}
	r.contextFaulted(ContextRef{1, 1}, abi.ErrorDeviceLost)
	lost("a start without a GPU", true)
	if kind := control(0, abi.ControlReset); kind != resetContext {
		t.Errorf("reset is %v", kind)
	}
	r.contextFaulted(ContextRef{0, 1}, abi.ErrorDeviceLost) // the old executor's last word
	r.contextReady(ContextRef{0, 2})
	lost("a good start", false)
	r.contextFaulted(ContextRef{0, 1}, abi.ErrorDeviceLost)
	lost("what was late", false)
	if got := abi.ContextState(r.get(abi.ContextSlot(0, abi.ContextStatus))); got != abi.ContextReady {
		t.Errorf("context is %v, want ready", got)
	}
	r.contextFaulted(ContextRef{0, 2}, abi.ErrorDeviceLost)
	r.reset()
	lost("a reset of the device", false)
}

func TestContextFaultAndReset(t *testing.T) {
	r := ready(t)
	goodChannel().create(r, 0)
	r.channelReady(ChannelRef{0, 1})
	r.take()
	states := func(when string, ch abi.ChannelState, reason, fault abi.ErrorCode) {
		t.Helper()
		if got, e := abi.ChannelState(r.get(abi.ChannelSlot(0, abi.ChannelStatus))), abi.ErrorCode(r.get(abi.ChannelSlot(0, abi.ChannelError))); got != ch || e != reason {
			t.Errorf("channel after %s: %v, %v", when, got, e)
		}
		if got, e := abi.ContextState(r.get(abi.ContextSlot(0, abi.ContextStatus))), abi.ErrorCode(r.get(abi.ContextSlot(0, abi.ContextError))); got != abi.ContextFaulted || e != fault {
			t.Errorf("context after %s: %v, %v", when, got, e)
		}
	}
	r.contextFaulted(ContextRef{0, 1}, abi.ErrorGPUFault)
	if !r.dirty.event {
		t.Error("a fault raises no state interrupt")
	}
	states("a kernel's fault", abi.ChannelReady, abi.ErrorNone, abi.ErrorGPUFault)
	r.contextFaulted(ContextRef{0, 1}, abi.ErrorExecutorLost)
	states("the executor's end", abi.ChannelFailed, abi.ErrorExecutorLost, abi.ErrorGPUFault)
	r.set(abi.ContextSlot(0, abi.ContextControl), uint32(abi.ControlReset))
	actions := r.take()
	if len(actions) != 1 || actions[0].kind != resetContext || actions[0].context.Generation != 2 || actions[0].context.Tag != 77 {
		t.Fatalf("reset: %+v", actions)
	}
	r.contextReady(ContextRef{0, 1}) // the old executor's last word
	if got := abi.ContextState(r.get(abi.ContextSlot(0, abi.ContextStatus))); got != abi.ContextResetting {
		t.Errorf("context is %v, want resetting", got)
	}
	r.contextReady(ContextRef{0, 2})
	if got := abi.ChannelState(r.get(abi.ChannelSlot(0, abi.ChannelStatus))); got != abi.ChannelFree {
		t.Errorf("channel after the context's reset is %v, want free", got)
	}
	if err := goodChannel().create(r, 3); err != abi.ErrorNone {
		t.Errorf("channel in the reset context: %v", err)
	}
	if got := r.get(abi.ContextSlot(0, abi.ContextChannels)); got != 1 {
		t.Errorf("%d channels, want 1", got)
	}
}

func TestDeviceReset(t *testing.T) {
	r := ready(t)
	goodChannel().create(r, 0)
	r.take()
	r.set(abi.RegReset, 1)
	if got := abi.ErrorCode(r.get(abi.RegError)); got != abi.ErrorBadReset {
		t.Errorf("reset with another value: %v", got)
	}
	r.set(abi.RegReset, abi.ResetMagic)
	if actions := r.take(); len(actions) != 1 || actions[0].kind != resetAll {
		t.Errorf("reset: %+v", actions)
	}
	fresh := newRegisters(testConfig(t))
	for off := 0; off < abi.BAR0Size; off += 4 {
		switch off {
		case abi.RegGeneration, abi.ContextSlot(0, abi.ContextGeneration):
			continue
		}
		if got, want := r.get(off), fresh.get(off); got != want {
			t.Errorf("register %#x is %#x after reset, want %#x", off, got, want)
		}
	}
	r.contextReady(ContextRef{0, 1})
	r.channelReady(ChannelRef{0, 1})
	if r.dirty.event {
		t.Error("an answer to what was before the reset changed something")
	}
}
