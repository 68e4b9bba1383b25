package driver

import (
	"context"
	"time"

	"vgpud/guestagent/preempt/tune/cache"
)

// learnTimeout bounds saving what was learned.
const learnTimeout = 5 * time.Second

func nanos(n uint64) time.Duration { return time.Duration(min(n, uint64(time.Hour))) }

// markDirty makes the flusher save what was learned about a kernel. It does not block.
func (p *preemption) markDirty(k *forms) {
	p.mu.Lock()
	p.dirty[k] = struct{}{}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// flush saves what was learned about the kernels that are marked.
func (p *preemption) flush() {
	p.mu.Lock()
	noted := make([]*forms, 0, len(p.dirty))
	for k := range p.dirty {
		noted = append(noted, k)
	}
	clear(p.dirty)
	p.mu.Unlock()
	if len(noted) == 0 {
		return
	}
	entries := make([]cache.Entry, len(noted))
	for i, k := range noted {
		entries[i] = k.entry()
	}
	ctx, cancel := context.WithTimeout(context.Background(), learnTimeout)
	defer cancel()
	// A failure is no reason to disturb this program: the next one measures again.
	_ = p.opts.Memory.Learn(ctx, entries)
}

// startFlusher starts, once, the context's goroutine that saves what was learned, and asks the host
// what it wants.
func (p *preemption) startFlusher(bus Bus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		return
	}
	p.stopped = make(chan struct{})
	go func() {
		defer close(p.stopped)
		for {
			select {
			case <-p.wake:
				p.askHost(bus)
				p.flush()
			case <-p.stop:
				p.flush()
				return
			}
		}
	}()
}

func (p *preemption) stopFlusher() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		close(p.stop)
		<-stopped
	}
}
