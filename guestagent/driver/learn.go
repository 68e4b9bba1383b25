package driver

import (
	"context"
	"time"

	"vgpud/guestagent/preempt/tune/cache"
)

// tellPatience bounds how long is waited for who keeps what was learned.
const tellPatience = 5 * time.Second

func nanos(n uint64) time.Duration { return time.Duration(min(n, uint64(time.Hour))) }

// note has what was learned of a kernel told to the memory soon. It does not block.
func (p *preempting) note(k *forms) {
	p.mu.Lock()
	p.dirty[k] = struct{}{}
	p.mu.Unlock()
	select {
	case p.told <- struct{}{}:
	default:
	}
}

// tell tells the memory what was noted.
func (p *preempting) tell() {
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
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	// What isn't kept is learned again by the next program: no reason to disturb this one.
	_ = p.opts.Memory.Learn(ctx, entries)
}

// begin starts the goroutine that tells the memory what is noted, once; end ends it, when all is told. It belongs to
// the context.
func (p *preempting) begin() {
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
			case <-p.told:
				p.tell()
			case <-p.stop:
				p.tell()
				return
			}
		}
	}()
}

func (p *preempting) end() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		close(p.stop)
		<-stopped
	}
}
