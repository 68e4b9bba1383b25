// Package tokenbucket limits how often something is done. It has no clock of its own, so that it can
// be used with any.
package tokenbucket

import "time"

// Bucket is a token bucket: it allows an action Burst times at once, and once in Every on average.
// Its state is one instant (the generic cell rate algorithm of ITU-T I.371). A Bucket whose Every is 0
// allows everything. It is not safe for concurrent use.
type Bucket struct {
	Every time.Duration
	Burst int
	full  time.Duration // when the bucket is full again
}

// Next returns the first instant from now on at which the action is allowed.
func (b *Bucket) Next(now time.Duration) time.Duration {
	return max(now, b.full-time.Duration(b.Burst-1)*b.Every)
}

// Take counts an action at now.
func (b *Bucket) Take(now time.Duration) { b.full = max(b.full, now) + b.Every }
