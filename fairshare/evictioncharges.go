package fairshare

import "time"

// EvictionCharges keeps who is charged for which eviction. It is for whoever carries out a
// policy's verdicts: told of evictions as they are asked for and of what they
// cost, it says what each guest's bill is to be changed by. The zero value is
// empty. It keeps an entry for each eviction under way and each guest, no more.
type EvictionCharges struct {
	asked []asked
	bills []Bill
}

// asked is an eviction that was asked for and is not over.
type asked struct {
	launch        LaunchID
	victim, cause GuestID
}

// Bill is what evictions have to do with one guest.
type Bill struct {
	Guest GuestID
	// Caused is how many evictions were for the guest's sake, and Suffered how
	// many of its launches' there were.
	Caused, Suffered uint64
	// Cost is what those that it caused cost, whoever lost the time.
	Cost time.Duration

	net time.Duration // for others' launches, less others' for its own; since Settle
}

// Requested is to be called when an Evict verdict is carried out.
func (l *EvictionCharges) Requested(v Verdict) {
	if v.Action != Evict || v.Launch == 0 {
		return
	}
	for i := range l.asked {
		if l.asked[i].launch == v.Launch {
			return // the first word counts
		}
	}
	l.asked = append(l.asked, asked{launch: v.Launch, victim: v.Guest, cause: v.For})
}

// Ended is to be called when an evicted launch has left the GPU, or ended before
// it could, with the GPU time that the eviction cost; zero where it ended. It
// returns who is charged with it; 0 is nobody, as for a launch that was not
// asked to leave.
func (l *EvictionCharges) Ended(launch LaunchID, cost time.Duration) GuestID {
	for i := range l.asked {
		a := l.asked[i]
		if a.launch != launch {
			continue
		}
		l.asked = append(l.asked[:i], l.asked[i+1:]...)
		l.bill(a.victim).Suffered++
		if a.cause == 0 {
			return 0
		}
		cause := l.bill(a.cause)
		cause.Caused++
		cause.Cost += cost
		if a.cause != a.victim {
			// What the victim lost is in its own GPU time, and is no fault of its.
			cause.net += cost
			l.bill(a.victim).net -= cost
		}
		return a.cause
	}
	return 0
}

// Idled is to be called for a guest that had the GPU, and left it idle for as long
// while others waited.
func (l *EvictionCharges) Idled(id GuestID, cost time.Duration) { l.bill(id).net += max(cost, 0) }

// Settle returns what is new since the last call for the guest's [Guest.Charged].
func (l *EvictionCharges) Settle(id GuestID) time.Duration {
	b := l.bill(id)
	d := b.net
	b.net = 0
	return d
}

// Bill is what evictions have had to do with a guest.
func (l *EvictionCharges) Bill(id GuestID) Bill { return *l.bill(id) }

// Forget drops a guest that left, and what it or anybody asked for its sake.
func (l *EvictionCharges) Forget(id GuestID) {
	keep := l.asked[:0]
	for _, a := range l.asked {
		if a.victim != id {
			if a.cause == id {
				a.cause = 0
			}
			keep = append(keep, a)
		}
	}
	l.asked = keep
	for i := range l.bills {
		if l.bills[i].Guest == id {
			l.bills = append(l.bills[:i], l.bills[i+1:]...)
			return
		}
	}
}

// bill finds a guest's bill, or begins one.
func (l *EvictionCharges) bill(id GuestID) *Bill {
	for i := range l.bills {
		if l.bills[i].Guest == id {
			return &l.bills[i]
		}
	}
	l.bills = append(l.bills, Bill{Guest: id})
	return &l.bills[len(l.bills)-1]
}
