package gpu

// Lazy is a context whose memory is allocated and freed on the GPU later than the calls return. Its
// user has to bound how much of that is pending at a time.
type Lazy interface {
	// Zeroes returns the channel in which Alloc has memory zeroed, concurrently with the context's
	// other channels, and the newest fence there. The channel belongs to the context: only Done,
	// Outcome and Wait may be called. Alloc waits while [OutcomesKept] fences are not done.
	Zeroes() (Channel, Fence)
	// Freed returns how many freed bytes are not given back yet, since commands that were queued
	// before may still use them. They are given back once the end of those commands is noticed: by
	// Done of their channels, and by Freed.
	Freed() uint64
}
