package gpu

// Lazy is a context whose memory comes and goes on the GPU later than the calls return
// that have it do so. Its user is to see to it that not too much of that is there at a time.
type Lazy interface {
	// Zeroes is the channel in which each Alloc has its memory zeroed, beside the
	// context's others, and the newest fence there. It is the context's: of its methods
	// only Done, Outcome and Wait may be called. Alloc waits where [OutcomesKept] are not
	// done.
	Zeroes() (Channel, Fence)
	// Freed is how many bytes are free, and not given back yet since commands that were
	// queued before may still use them. They are given back as soon as the end of those is
	// noticed: by Done of the channels that they are in, and by Freed.
	Freed() uint64
}
