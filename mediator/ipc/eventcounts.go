package ipc

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"vgpud/mediator/vgpu/abi"
)

const (
	eventAreaBytes = lineBytes + abi.MaxEventKernels*eventBytes
	eventBytes     = 2 * lineBytes
	// eventNameBytes is how much of a kernel's name there is room for.
	eventNameBytes = 64
)

// eventArea follows the work logs on the page: the guest's event kernels, for the daemon to show. It
// is written by exec.
type eventArea struct {
	// Sums over all event kernels that the guest has had.
	ended, dropped, stray atomic.Uint64
	_                     [lineBytes - 24]byte

	kernels [abi.MaxEventKernels]eventLayout
}

// eventLayout is one event kernel.
type eventLayout struct {
	context  atomic.Uint32 // slot + 1; 0: there is no such kernel
	resident atomic.Uint32
	ended    atomic.Uint64
	dropped  atomic.Uint64
	stray    atomic.Uint64
	p50, p99 atomic.Int64
	tier     atomic.Uint32 // abi.EventTier; 0 with executors of older versions, which have no other
	why      atomic.Uint32 // abi.EventReason; 0 with executors of older versions
	_        [lineBytes - 56]byte
	name     [eventNameBytes / 8]atomic.Uint64
}

// EventKernel is what an executor tells of an event kernel.
type EventKernel struct {
	Number, Context       int
	Name                  string
	Tier                  abi.EventTier
	Why                   abi.EventReason // of the tier EventHost
	Resident              bool
	Ended, Dropped, Stray uint64
	P50, P99              time.Duration
}

// EventSums are over all event kernels that a guest has had.
type EventSums struct{ Ended, Dropped, Stray uint64 }

// SetEventKernel tells of an event kernel, and adds what is new to the sums. Its executor calls it. On
// a page of an older version it does nothing.
func (p *ControlPage) SetEventKernel(k EventKernel) {
	if p.events == nil || k.Number < 0 || k.Number >= abi.MaxEventKernels {
		return
	}
	l := &p.events.kernels[k.Number]
	if l.context.Load() != uint32(k.Context)+1 {
		l.ended.Store(0)
		l.dropped.Store(0)
		l.stray.Store(0)
		var name [eventNameBytes]byte
		copy(name[:], k.Name)
		for i := range l.name {
			l.name[i].Store(binary.LittleEndian.Uint64(name[8*i:]))
		}
	}
	for _, c := range []struct {
		sum, word *atomic.Uint64
		now       uint64
	}{{&p.events.ended, &l.ended, k.Ended}, {&p.events.dropped, &l.dropped, k.Dropped}, {&p.events.stray, &l.stray, k.Stray}} {
		if before := c.word.Swap(c.now); c.now > before {
			c.sum.Add(c.now - before)
		}
	}
	l.p50.Store(int64(k.P50))
	l.p99.Store(int64(k.P99))
	l.tier.Store(uint32(k.Tier))
	l.why.Store(uint32(k.Why))
	storeBool(&l.resident, k.Resident)
	l.context.Store(uint32(k.Context) + 1)
}

// dropEventKernels forgets the kernels with these numbers.
func (p *ControlPage) dropEventKernels(mask uint32) {
	for n := range abi.MaxEventKernels {
		if p.events != nil && mask&(1<<n) != 0 {
			p.events.kernels[n].context.Store(0)
		}
	}
}

// EventKernels returns the guest's event kernels by number, and the sums. Values that an executor
// wrote are bounded, and a name has nothing that can't be printed.
func (p *ControlPage) EventKernels() (all []EventKernel, sums EventSums) {
	if !p.hasEvents() {
		return nil, sums
	}
	for n := range p.events.kernels {
		l := &p.events.kernels[n]
		c := l.context.Load()
		if c == 0 || c > MaxContexts {
			continue
		}
		var name [eventNameBytes]byte
		for i := range l.name {
			binary.LittleEndian.PutUint64(name[8*i:], l.name[i].Load())
		}
		all = append(all, EventKernel{
			Number: n, Context: int(c) - 1, Name: printable(name[:]), Tier: abi.EventTier(l.tier.Load()), Why: abi.EventReason(l.why.Load()), Resident: l.resident.Load() != 0,
			Ended: count(&l.ended), Dropped: count(&l.dropped), Stray: count(&l.stray), P50: timeIn(&l.p50), P99: timeIn(&l.p99),
		})
	}
	return all, EventSums{count(&p.events.ended), count(&p.events.dropped), count(&p.events.stray)}
}

// printable returns the text up to the first zero byte, without what can't be printed.
func printable(b []byte) string {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(b))
}
