package fairshare

import "time"

// EvictionCharges tracks which guest is charged for which eviction. The caller, which carries out a
// policy's verdicts, reports evictions as they are requested and what they cost. The zero value is
// empty. It has one entry for each eviction under way and each guest that was concerned by one, no
// more.
type EvictionCharges struct {
	requests []request
	bills    map[GuestID]*Bill
}

// request is an eviction that was requested and is not over.
type request struct {
	launch        LaunchID
	victim, cause GuestID
}

// Bill is a guest's account of evictions.
type Bill struct {
	Guest GuestID
	// Caused is how many evictions were for the guest's sake, and Suffered how many of its own
	// launches were evicted.
	Caused, Suffered uint64
	// Cost is what the evictions that it caused cost, whichever guest lost the time.
	Cost time.Duration

	net time.Duration // cost of others' launches for its sake, less that of its own for others; since Settle
}

// Requested is called when an Evict verdict is carried out.
func (l *EvictionCharges) Requested(v Verdict) {
	if v.Action != Evict || v.Launch == 0 {
		return
	}
	for i := range l.requests {
		if l.requests[i].launch == v.Launch {
			return // the first request counts
		}
	}
	l.requests = append(l.requests, request{launch: v.Launch, victim: v.Guest, cause: v.For})
}

// Ended is called when an evicted launch has left the GPU, with the GPU time that the eviction
// cost, or when it ended before it could leave, with zero. It returns the guest that is charged for
// it, or 0 if none is, as for a launch that was not evicted.
func (l *EvictionCharges) Ended(launch LaunchID, cost time.Duration) GuestID {
	for i := range l.requests {
		a := l.requests[i]
		if a.launch != launch {
			continue
		}
		l.requests = append(l.requests[:i], l.requests[i+1:]...)
		l.bill(a.victim).Suffered++
		if a.cause == 0 {
			return 0
		}
		cause := l.bill(a.cause)
		cause.Caused++
		cause.Cost += cost
		if a.cause != a.victim {
			// The victim's loss is part of its own GPU time, but not its fault.
			cause.net += cost
			l.bill(a.victim).net -= cost
		}
		return a.cause
	}
	return 0
}

// Idled is called for a guest that had the GPU and left it idle for that long while others waited.
func (l *EvictionCharges) Idled(id GuestID, cost time.Duration) { l.bill(id).net += max(cost, 0) }

// Settle returns the change since the last call, for the guest's [Guest.Charged].
func (l *EvictionCharges) Settle(id GuestID) time.Duration {
	b := l.bills[id]
	if b == nil {
		return 0
	}
	d := b.net
	b.net = 0
	return d
}

// Bill returns a guest's account.
func (l *EvictionCharges) Bill(id GuestID) Bill {
	if b := l.bills[id]; b != nil {
		return *b
	}
	return Bill{Guest: id}
}

// Forget drops a guest that left, with the evictions of its launches and for its sake.
func (l *EvictionCharges) Forget(id GuestID) {
	keep := l.requests[:0]
	for _, a := range l.requests {
		if a.victim != id {
			if a.cause == id {
				a.cause = 0
			}
			keep = append(keep, a)
		}
	}
	l.requests = keep
	delete(l.bills, id)
}

// bill returns a guest's account, which it opens if there is none.
func (l *EvictionCharges) bill(id GuestID) *Bill {
	b := l.bills[id]
	if b == nil {
		if l.bills == nil {
			l.bills = make(map[GuestID]*Bill)
		}
		b = &Bill{Guest: id}
		l.bills[id] = b
	}
	return b
}
