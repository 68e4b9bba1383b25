package accounting

import "time"

// Owner is one accounted party, a guest, as a [Gate] numbers them.
type Owner uint32

// Gate lets guests' commands through to the GPU and holds them back. Only
// NEON's sampling asks for it; watching the registers needs no gate.
type Gate interface {
	// Owners are those that have channels now. The result is valid until the
	// next call.
	Owners() []Owner
	// Admit lets exactly the given owners' commands be fetched and holds all
	// others'. What was fetched runs to its end.
	Admit(owners []Owner)
	// Drained reports whether nothing that was fetched is unfinished.
	Drained() bool
	// Progress is what o has seen of the GPU since it was attached.
	Progress(o Owner) Progress
}

// Progress is how far an owner's commands are.
type Progress struct {
	// Submitted and Completed count commands.
	Submitted, Completed uint64
	// LastSubmit is when the newest command was submitted, on the clock that
	// the sampling runs on. NEON traps submissions while it samples, so it
	// knows.
	LastSubmit time.Duration
}
