// Package tasks keeps the GPU tasks of a host: the contexts of guests that float, which wait for a
// GPU, are on one, or get none. It decides by package place, CASE's rules; what is here is what a
// host adds to them: contexts by their guests and slots, those that their guest's own contexts keep
// waiting, why each waits, and for how long each did. It is pure: no clock, no goroutine, no I/O,
// and therefore no locks.
//
//	Submit ─► waits ─Decide─► placed ─Free─► gone
//	Adopt ──────────────────►
//
// A task has its memory from the moment that Decide says so until Free. The caller calls Began once it
// has saved that, or Undo if it can't, tells the guest, starts its executor, and calls Free once that is
// gone.
package tasks
