package fairshare

import "time"

// AssumedCost is what evicting a kernel is taken to cost where nobody has
// measured it: what an H100's driver takes to get a running context off the GPU,
// whatever it executes.
const AssumedCost = 360 * time.Microsecond

// Rate bounds how many evictions a guest may cause.
type Rate struct {
	// PerSecond is how many it may cause in the long run; below 0: any number.
	PerSecond float64
	// Burst is how many it may cause at once, at least 1.
	Burst float64
}

// DefaultRate is the bound where none is given. A guest that makes the most of it
// costs the others 3 % of the GPU where an eviction takes 64 µs (the chosen form
// of short kernels on an H100), and 18 % at [AssumedCost]; it is charged for it.
var DefaultRate = Rate{PerSecond: 500, Burst: 100}

// evictions counts, for each guest, those that it may still cause.
type evictions struct {
	rate    Rate
	buckets []bucket // one for each guest of the newest state, in its order
	spare   []bucket
}

// bucket holds a guest's tokens: one is taken for each eviction, and they come
// back at the rate.
type bucket struct {
	guest  GuestID
	tokens float64
	at     time.Duration // when tokens was right
}

func newEvictions(r Rate) evictions {
	if r == (Rate{}) {
		r = DefaultRate
	}
	r.Burst = max(r.Burst, 1)
	return evictions{rate: r}
}

// sync takes in the guests of st, which come with full buckets.
func (e *evictions) sync(now time.Duration, st *State) {
	same := len(e.buckets) == len(st.Guests)
	for i := range e.buckets {
		same = same && e.buckets[i].guest == st.Guests[i].ID
	}
	if same {
		return
	}
	e.spare = e.spare[:0]
	for i := range st.Guests {
		id := st.Guests[i].ID
		if b := e.of(id); b != nil {
			e.spare = append(e.spare, *b)
		} else {
			e.spare = append(e.spare, bucket{guest: id, tokens: e.rate.Burst, at: now})
		}
	}
	e.buckets, e.spare = e.spare, e.buckets
}

// of is a guest's bucket, nil where it has none.
func (e *evictions) of(id GuestID) *bucket {
	for i := range e.buckets {
		if e.buckets[i].guest == id {
			return &e.buckets[i]
		}
	}
	return nil
}

// take takes n tokens of a guest's, all or none; see ready.
func (e *evictions) take(now time.Duration, id GuestID, n int) (wait time.Duration, ok bool) {
	wait, ok = e.ready(now, id, n)
	if b := e.of(id); ok && b != nil {
		b.tokens -= float64(n)
	}
	return wait, ok
}

// ready is whether a guest has n tokens, and if not, in how long it will have
// them; 0 is never, as for a guest that nobody knows. More at once than a burst
// can be had from a full bucket, and are owed.
func (e *evictions) ready(now time.Duration, id GuestID, n int) (wait time.Duration, ok bool) {
	if e.rate.PerSecond < 0 {
		return 0, true
	}
	b := e.of(id)
	if b == nil {
		return 0, false
	}
	b.tokens = min(b.tokens+(now-b.at).Seconds()*e.rate.PerSecond, e.rate.Burst)
	b.at = now
	need := min(float64(n), e.rate.Burst) - b.tokens
	switch {
	case need <= 0:
		return 0, true
	case e.rate.PerSecond == 0:
		return 0, false
	}
	// A nanosecond more, so that it has not been rounded away.
	return time.Duration(need/e.rate.PerSecond*float64(time.Second)) + 1, false
}

// evictor takes suspended guests' launches off the GPU.
type evictor struct{ evictions evictions }

// clear adds verdicts to v that evict what a suspended guest has on the GPU, as
// far as it leaves when told: in the guest's own name, and no more often than it
// may cause. What is likely to be done sooner than it could leave is left alone.
func (e *evictor) clear(now time.Duration, st *State, id GuestID, v []Verdict) []Verdict {
	for i := range st.Launches {
		l := &st.Launches[i]
		if l.Guest != id || !l.Running || l.Evicting || !l.Evictable {
			continue
		}
		if left := l.Predicted - l.Used; left > 0 && left <= l.cost() {
			continue
		}
		if _, ok := e.evictions.take(now, id, 1); !ok {
			break
		}
		v = append(v, Verdict{Guest: id, Launch: l.ID, Action: Evict, BelowSM: everywhere, For: id})
	}
	return v
}
