package vgpu

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// checkTables checks the tables' invariants.
func checkTables(t interface{ Fatalf(string, ...any) }, r *registers) {
	channels := make([]uint32, len(r.contexts))
	type span struct {
		slot     int
		from, to uint64
	}
	var rings []span
	for i := range r.channels {
		c := &r.channels[i]
		if c.state > abi.ChannelClosing {
			t.Fatalf("channel %d: %v", i, c.state)
		}
		if c.state == abi.ChannelFree {
			if c.open != (Channel{}) {
				t.Fatalf("free channel %d still holds %+v", i, c.open)
			}
			continue
		}
		owner := &r.contexts[c.open.Context.Slot]
		channels[c.open.Context.Slot]++
		switch {
		case owner.state == abi.ContextFree:
			t.Fatalf("channel %d is %v in a free context", i, c.state)
		case (c.state == abi.ChannelReady || c.state == abi.ChannelOpening) &&
			(owner.state != abi.ContextReady || owner.generation != c.open.Context.Generation):
			t.Fatalf("channel %d is %v in a context that is %v", i, c.state, owner.state)
		case c.open.Slot != i || c.open.Generation != c.generation:
			t.Fatalf("channel %d holds %+v in generation %d", i, c.open.ChannelRef, c.generation)
		}
		for _, ring := range []Ring{c.open.Submission, c.open.Completion} {
			s := span{i, ring.Offset, ring.Offset + uint64(ring.Entries)*abi.EntrySize}
			end := r.cfg.SharedBytes
			if r.version != abi.Version1_0 {
				end = int64(abi.HeaderBytes(len(r.channels)) + r.cfg.RingsBytes())
			}
			if s.from < uint64(abi.HeaderBytes(len(r.channels))) || s.to > uint64(end) {
				t.Fatalf("channel %d: ring %+v outside", i, ring)
			}
			for _, o := range rings {
				if s.from < o.to && o.from < s.to {
					t.Fatalf("rings of channels %d and %d overlap", i, o.slot)
				}
			}
			rings = append(rings, s)
		}
	}
	for i := range r.contexts {
		c := &r.contexts[i]
		switch q, code := abi.DecodeTaskRequest(&c.request); {
		case c.task.state != abi.TaskNone && (!c.hasRequest() || c.state == abi.ContextFree || code != abi.ErrorNone || q.Memory == 0):
			t.Fatalf("context %d, %v with flags %#x, is a task: %+v, asks for %+v (%v)", i, c.state, c.flags, c.task, q, code)
		case c.state != abi.ContextFree && c.hasRequest() && c.task.state == abi.TaskNone:
			t.Fatalf("context %d, %v, floats and is no task", i, c.state)
		}
		if c.state > abi.ContextDestroying || c.channels != channels[i] {
			t.Fatalf("context %d: %v with %d channels, %d counted", i, c.state, c.channels, channels[i])
		}
	}
}

// anyVersion is one that the device speaks.
var anyVersion = rapid.SampledFrom([]abi.Version{abi.Version1_0, abi.Version1_1, abi.Version1_3})

// TestTablesProperty drives the tables with a guest and a backend that use their interfaces in any
// order.
func TestTablesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, err := Config{SharedBytes: abi.MinSharedBytes, Contexts: 3, Channels: 5, Vectors: 4,
			Features: abi.FeatureContexts | abi.FeatureFloating}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		r := newRegisters(cfg)
		r.set(abi.RegSelectVersion, uint32(anyVersion.Draw(t, "version")))
		r.set(abi.RegAcceptFeaturesLo, uint32(abi.FeatureContexts|abi.FeatureFloating))
		slot := rapid.IntRange(0, 5)
		contextRef := func(t *rapid.T) ContextRef {
			i := rapid.IntRange(-1, 3).Draw(t, "context")
			g := rapid.Uint32Range(0, 2).Draw(t, "age")
			if i >= 0 && i < 3 {
				g = r.contexts[i].generation - g
			}
			return ContextRef{i, g}
		}
		channelRef := func(t *rapid.T) ChannelRef {
			i := rapid.IntRange(-1, 5).Draw(t, "channel")
			g := rapid.Uint32Range(0, 2).Draw(t, "age")
			if i >= 0 && i < 5 {
				g = r.channels[i].generation - g
			}
			return ChannelRef{i, g}
		}
		code := rapid.Map(rapid.Uint32Range(0, 30), func(v uint32) abi.ErrorCode { return abi.ErrorCode(v) })
		ops := map[string]func(*rapid.T){
			"context control": func(t *rapid.T) {
				r.set(abi.ContextSlot(slot.Draw(t, "slot"), abi.ContextControl), rapid.Uint32Range(0, 4).Draw(t, "control"))
			},
			"float": func(t *rapid.T) {
				q := abi.TaskRequest{Memory: rapid.Uint64().Draw(t, "memory"), Blocks: 1, Threads: rapid.Uint32Range(0, 2048).Draw(t, "threads")}
				r.float(slot.Draw(t, "slot"), q.Encode())
			},
			"channel create": func(t *rapid.T) {
				rings := uint64(cfg.RingsBytes() / abi.PageSize)
				page := rapid.OneOf(rapid.Uint64Range(5, 40), rapid.Uint64Range(rings, rings+8))
				channelSetup{
					context: rapid.Uint32Range(0, 3).Draw(t, "context"),
					sub:     page.Draw(t, "sub") * abi.PageSize, subN: 128 << rapid.IntRange(0, 3).Draw(t, "subN"),
					comp: page.Draw(t, "comp") * abi.PageSize, compN: 128 << rapid.IntRange(0, 3).Draw(t, "compN"),
					vector: rapid.Uint32Range(0, 5).Draw(t, "vector"),
				}.create(r, slot.Draw(t, "slot"))
			},
			"channel destroy": func(t *rapid.T) {
				r.set(abi.ChannelSlot(slot.Draw(t, "slot"), abi.ChannelControl), uint32(abi.ControlDestroy))
			},
			"write": func(t *rapid.T) {
				at := rapid.OneOf(rapid.IntRange(0, 0x2fff), rapid.IntRange(abi.TaskTable, abi.TaskTable+0xfff)).Draw(t, "offset")
				r.set(at&^3, rapid.Uint32().Draw(t, "value"))
			},
			"version":         func(t *rapid.T) { r.set(abi.RegSelectVersion, uint32(anyVersion.Draw(t, "version"))) },
			"doorbell":        func(t *rapid.T) { r.set(abi.Doorbell(slot.Draw(t, "slot")), 0) },
			"context ready":   func(t *rapid.T) { r.contextReady(contextRef(t)) },
			"context faulted": func(t *rapid.T) { r.contextFaulted(contextRef(t), code.Draw(t, "code")) },
			"context gone":    func(t *rapid.T) { r.contextGone(contextRef(t)) },
			"channel ready":   func(t *rapid.T) { r.channelReady(channelRef(t)) },
			"channel failed":  func(t *rapid.T) { r.channelFailed(channelRef(t), code.Draw(t, "code")) },
			"channel closed":  func(t *rapid.T) { r.channelClosed(channelRef(t)) },
			"": func(t *rapid.T) {
				checkTables(t, r)
				checkActions(t, r, r.take())
			},
		}
		t.Repeat(ops)
	})
}

// checkActions compares the actions with the tables.
func checkActions(t *rapid.T, r *registers, actions []action) {
	for _, a := range actions {
		switch a.kind {
		case createContext, resetContext, destroyContext:
			if a.context.ContextRef != r.contextRef(a.context.Slot) {
				t.Fatalf("action on %+v, which is not alive", a.context.ContextRef)
			}
		case openChannel:
			if r.channels[a.channel.Slot].open != a.channel {
				t.Fatalf("told to open %+v, holds %+v", a.channel, r.channels[a.channel.Slot].open)
			}
		case closeChannel, kick:
			if r.liveChannel(a.channel.ChannelRef) == nil {
				t.Fatalf("action on %+v, which is not alive", a.channel.ChannelRef)
			}
		}
	}
}

// FuzzRegisters makes accesses of any size. Input: records of offset (2 bytes), size (1 byte, the
// highest bit a read) and data.
func FuzzRegisters(f *testing.F) {
	rec := func(off, n int, v uint64) []byte {
		b := []byte{byte(off), byte(off >> 8), byte(n)}
		return append(b, binary.LittleEndian.AppendUint64(nil, v)[:n&7+n&8]...)
	}
	create := rec(abi.RegSelectVersion, 4, uint64(abi.Newest))
	create = append(create, rec(abi.ContextSlot(0, abi.ContextControl), 4, 1)...)
	f.Add(create)
	f.Add(append(create, rec(abi.ContextSlot(0, abi.ContextControl), 4, 3)...))
	f.Add(rec(abi.RegReset, 4, abi.ResetMagic))
	f.Add(rec(abi.Doorbell(0), 8, 1))
	f.Add([]byte{0xff, 0xff, 0x85, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := testConfig(t)
		r := newRegisters(cfg)
		for len(data) >= 3 {
			off, size := uint64(binary.LittleEndian.Uint16(data)), data[2]
			data = data[3:]
			n := int(size & 0x7f)
			if size&0x80 != 0 {
				r.read(off, make([]byte, n))
				continue
			}
			n = min(n, len(data))
			r.write(off, data[:n])
			data = data[n:]
			for _, a := range r.take() {
				switch a.kind {
				case createContext, resetContext:
					r.contextReady(a.context.ContextRef)
				case destroyContext:
					r.contextGone(a.context.ContextRef)
				case openChannel:
					r.channelReady(a.channel.ChannelRef)
				case closeChannel:
					r.channelClosed(a.channel.ChannelRef)
				}
			}
		}
		checkTables(t, r)
	})
}

func BenchmarkDoorbell(b *testing.B) {
	r := newRegisters(testConfig(b))
	p := make([]byte, 4)
	b.ReportAllocs()
	for b.Loop() {
		r.write(uint64(abi.Doorbell(0)), p)
		r.actions = r.actions[:0]
	}
}
