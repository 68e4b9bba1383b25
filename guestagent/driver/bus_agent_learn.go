package driver

import (
	"context"
	"errors"

	"vgpud/guestagent/allot"
	"vgpud/guestagent/preempt/tune"
	"vgpud/guestagent/preempt/tune/cache"
)

// Preempt returns the agent's setting for preemptible kernels, unless the environment turns them
// off. The agent keeps what is learned.
func (b *AgentBus) Preempt() *PreemptOptions {
	g := b.grant.Preempt
	if g == nil || g.Off || preemptOff() {
		return &PreemptOptions{Off: true}
	}
	return &PreemptOptions{Wanted: tune.Parameters{Latency: g.Latency, Overhead: g.Overhead}, Memory: b}
}

// keysAtOnce is how many kernels one message asks for.
const keysAtOnce = 64

// Recall asks the agent what it knows about kernels.
func (b *AgentBus) Recall(ctx context.Context, keys []cache.Key) ([]cache.Entry, error) {
	var known []cache.Entry
	for len(keys) > 0 {
		if err := ctx.Err(); err != nil {
			return known, context.Cause(ctx)
		}
		part := keys[:min(len(keys), keysAtOnce)]
		r, err := b.question(allot.Request{Op: allot.OpRecall, Keys: part})
		if err != nil {
			return known, err
		}
		known = append(known, r.Kernels...)
		if r.Next < 0 || r.Next > len(part) {
			return known, errors.New("the agent's answer is out of range")
		}
		if r.Next == 0 {
			r.Next = len(part)
		}
		keys = keys[r.Next:]
	}
	return known, nil
}

// Learn sends the agent what was learned about kernels.
func (b *AgentBus) Learn(ctx context.Context, entries []cache.Entry) error {
	for len(entries) > 0 {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n := max(allot.Fit(entries), 1)
		if _, err := b.question(allot.Request{Op: allot.OpLearn, Learned: entries[:n]}); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}
