package vfiouser

import "sync/atomic"

// Stats counts what a [Server] has seen since it was made.
type Stats struct {
	Clients  uint64 // that negotiated
	Refused  uint64 // clients turned away, and those that failed to negotiate
	Broken   uint64 // clients whose connection ended by a breach of the protocol or an error of the socket
	Requests uint64
	Errors   uint64 // requests that were refused
}

type counters struct {
	clients, refused, broken, requests, errors atomic.Uint64
}

// Stats returns the counts; it may be called at any time.
func (s *Server) Stats() Stats {
	c := &s.counters
	return Stats{
		Clients:  c.clients.Load(),
		Refused:  c.refused.Load(),
		Broken:   c.broken.Load(),
		Requests: c.requests.Load(),
		Errors:   c.errors.Load(),
	}
}
