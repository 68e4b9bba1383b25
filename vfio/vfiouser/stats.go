package vfiouser

import "sync/atomic"

// Stats counts a [Server]'s clients and requests since it was created.
type Stats struct {
	Clients  uint64 // that negotiated successfully
	Refused  uint64 // refused, or failed to negotiate
	Broken   uint64 // ended by a protocol violation or an error of the socket
	Requests uint64
	Errors   uint64 // answered with an error
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
