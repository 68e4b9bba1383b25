package vgpu_test

import (
	"fmt"
	"sync"

	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// strict is a backend that only checks the promises of [vgpu.Backend], whatever its guest does. It
// has no goroutine: its answers wait until the test gives them, in any order.
type strict struct {
	cfg vgpu.Config
	dev *vgpu.Device

	mu       sync.Mutex
	contexts map[int]*strictContext
	channels map[int]strictChannel
	pending  []answer
	given    []answer // some of them will be given again
	wrong    []string
}

// An answer is what the backend owes the device: success, or a failure with a code.
type answer func(ok bool, code abi.ErrorCode)

type strictContext struct {
	vgpu.Context
	ready, leaving bool
}

type strictChannel struct {
	vgpu.Channel
	closing bool
}

func newStrict(cfg vgpu.Config) *strict {
	return &strict{cfg: cfg, contexts: map[int]*strictContext{}, channels: map[int]strictChannel{}}
}

func (s *strict) complain(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// owe keeps what the backend has to answer.
func (s *strict) expectAnswer(a answer) { s.pending = append(s.pending, a) }

func (s *strict) CreateContext(c vgpu.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.contexts[c.Slot]; old != nil || c.Slot < 0 || c.Slot >= s.cfg.Contexts {
		s.complain("create of %+v where %+v is", c, old)
	}
	s.begin(c)
}

func (s *strict) ResetContext(c vgpu.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.contexts[c.Slot]; old == nil || old.leaving || old.Generation >= c.Generation {
		s.complain("reset to %+v where %+v is", c, old)
	}
	s.begin(c)
}

func (s *strict) begin(c vgpu.Context) {
	life := &strictContext{Context: c}
	s.contexts[c.Slot] = life
	s.expectAnswer(func(ok bool, code abi.ErrorCode) {
		if s.contexts[c.Slot] == life && !life.leaving && !life.ready {
			life.ready = ok
			s.free(c.Slot, c.Generation) // channels of earlier lives
		}
		if ok {
			s.dev.ContextReady(c.ContextRef)
		} else {
			s.dev.ContextFaulted(c.ContextRef, code)
		}
	})
}

func (s *strict) DestroyContext(c vgpu.ContextRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.contexts[c.Slot]
	if life == nil || life.ContextRef != c || life.leaving {
		s.complain("destroy of %+v where %+v is", c, life)
		return
	}
	life.leaving = true
	s.expectAnswer(func(bool, abi.ErrorCode) {
		if s.contexts[c.Slot] == life {
			delete(s.contexts, c.Slot)
			s.free(c.Slot, c.Generation+1)
		}
		s.dev.ContextGone(c)
	})
}

// free forgets the channels of a slot's contexts before a generation.
func (s *strict) free(slot int, generation uint32) {
	for i, ch := range s.channels {
		if ch.Context.Slot == slot && ch.Context.Generation < generation {
			delete(s.channels, i)
		}
	}
}

func (s *strict) OpenChannel(ch vgpu.Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.contexts[ch.Context.Slot]
	switch old, taken := s.channels[ch.Slot]; {
	case taken || ch.Slot < 0 || ch.Slot >= s.cfg.Channels:
		s.complain("opened %+v where %+v is", ch, old)
	case c == nil || c.ContextRef != ch.Context || !c.ready || c.leaving:
		s.complain("opened %+v in %+v", ch, c)
	case ch.Page != abi.ChannelPage(ch.Slot) || ch.Vector < -1 || ch.Vector >= s.cfg.Vectors:
		s.complain("opened %+v", ch)
	}
	header, end := abi.HeaderBytes(s.cfg.Channels), int(s.cfg.SharedBytes)
	if c == nil || c.Version != abi.Version1_0 {
		end = header + s.cfg.RingsBytes()
	}
	rings := []vgpu.Ring{ch.Submission, ch.Completion}
	for i, r := range rings {
		if to := r.Offset + uint64(abi.RingBytes(r.Entries)); r.Offset < uint64(header) ||
			to > uint64(end) || to < r.Offset || r.Entries < abi.MinRingEntries || r.Entries&(r.Entries-1) != 0 {
			s.complain("opened %+v, whose ring is no ring", ch)
		}
		others := rings[:i:i]
		for _, o := range s.channels {
			others = append(others, o.Submission, o.Completion)
		}
		for _, o := range others {
			if r.Offset < o.Offset+uint64(abi.RingBytes(o.Entries)) && o.Offset < r.Offset+uint64(abi.RingBytes(r.Entries)) {
				s.complain("opened %+v, whose ring lies over %+v", ch, o)
			}
		}
	}
	s.channels[ch.Slot] = strictChannel{Channel: ch}
	s.expectAnswer(func(ok bool, code abi.ErrorCode) {
		if ok {
			s.dev.ChannelReady(ch.ChannelRef)
		} else {
			s.dev.ChannelFailed(ch.ChannelRef, code)
		}
	})
}

func (s *strict) CloseChannel(ref vgpu.ChannelRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.channels[ref.Slot]
	if !ok || ch.ChannelRef != ref || ch.closing {
		s.complain("closed %+v where %+v is", ref, ch)
	}
	ch.closing = true
	s.channels[ref.Slot] = ch
	s.expectAnswer(func(bool, abi.ErrorCode) {
		if now, ok := s.channels[ref.Slot]; ok && now.ChannelRef == ref {
			delete(s.channels, ref.Slot)
		}
		s.dev.ChannelClosed(ref)
	})
}

func (s *strict) Kick(ref vgpu.ChannelRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.channels[ref.Slot]
	if c := s.contexts[ch.Context.Slot]; !ok || ch.ChannelRef != ref || c == nil || c.ContextRef != ch.Context || c.leaving {
		s.complain("kicked %+v where %+v is in %+v", ref, ch, c)
	}
}

func (s *strict) EventKernel(n int) bool {
	if n < 0 || n >= abi.MaxEventKernels {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.complain("asked about event kernel %d", n)
	}
	return n%2 == 0
}

func (s *strict) VectorsChanged(start, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start < 0 || count < 0 || start+count > s.cfg.Vectors {
		s.complain("vectors %d+%d of %d changed", start, count, s.cfg.Vectors)
		return
	}
	for v := start; v < start+count; v++ {
		f, err := s.dev.Vector(v)
		if err != nil {
			s.complain("vector %d: %v", v, err)
		}
		if f != nil {
			f.Close()
		}
	}
}

// Reset ends everything; answers that are still unanswered will be given all the same, since a
// backend may be that late.
func (s *strict) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.contexts)
	clear(s.channels)
}

// unanswered returns the number of pending answers.
func (s *strict) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// answer gives the device one of the answers that it waits for.
func (s *strict) answer(i int, ok bool, code abi.ErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	give := s.pending[i]
	s.pending = append(s.pending[:i], s.pending[i+1:]...)
	s.given = append(s.given[max(0, len(s.given)-16):], give)
	give(ok, code)
}

// answerAgain repeats all of the last answers.
func (s *strict) answerAgain(ok bool, code abi.ErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, give := range s.given {
		give(ok, code)
	}
}

// fault reports the end of all running executors' contexts.
func (s *strict) fault(code abi.ErrorCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.contexts {
		if c.ready {
			s.dev.ContextFaulted(c.ContextRef, code)
		}
	}
}

// check compares the device's tables with the calls to the backend.
func (s *strict) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) > 0 {
		return fmt.Errorf("the backend was told: %q", s.wrong)
	}
	st := s.dev.Stats()
	if len(st.Contexts) != len(s.contexts) || st.Channels != len(s.channels) {
		return fmt.Errorf("the device has %d contexts and %d channels, the backend %d and %d",
			len(st.Contexts), st.Channels, len(s.contexts), len(s.channels))
	}
	for _, c := range st.Contexts {
		if own := s.contexts[c.Slot]; own == nil || own.ContextRef != c.ContextRef ||
			c.State == abi.ContextReady && !own.ready {
			return fmt.Errorf("the device has context %+v, the backend %+v", c, own)
		}
	}
	return nil
}
