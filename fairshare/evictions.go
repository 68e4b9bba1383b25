package fairshare

import (
	"cmp"
	"slices"
	"time"
)

// AssumedCost is the assumed cost of evicting a kernel before it was measured: the time that an
// H100's driver takes to get a running context off the GPU, whatever it executes.
const AssumedCost = 360 * time.Microsecond

// Rate bounds how many evictions a guest may cause.
type Rate struct {
	// PerSecond is how many it may cause in the long run. Below 0: any number.
	PerSecond float64
	// Burst is how many it may cause at once, at least 1.
	Burst float64
}

// DefaultRate is the default bound. A guest that exhausts it costs the others 3 % of the GPU if an
// eviction takes 64 µs (the chosen form of short kernels on an H100), and 18 % at [AssumedCost]. It
// is charged for that.
var DefaultRate = Rate{PerSecond: 500, Burst: 100}

// evictions counts for each guest the evictions that it may still cause.
type evictions struct {
	rate    Rate
	buckets guestTable[bucket]
}

// bucket holds a guest's tokens: one is taken for each eviction, and they come back at the rate.
// The zero value is full.
type bucket struct {
	taken float64
	at    time.Duration // when taken was last updated
}

func newEvictions(r Rate) evictions {
	if r == (Rate{}) {
		r = DefaultRate
	}
	r.Burst = max(r.Burst, 1)
	return evictions{rate: r}
}

// take takes all n tokens from a guest, or none; see ready.
func (e *evictions) take(now time.Duration, id GuestID, n int) (wait time.Duration, ok bool) {
	wait, ok = e.ready(now, id, n)
	if b := e.buckets.get(id); ok && b != nil {
		b.taken += float64(n)
	}
	return wait, ok
}

// ready reports whether a guest has n tokens, and if not, in how long it will have them. A wait of
// 0 is never, as for an unknown guest. More tokens than a burst can be taken from a full bucket,
// which is then overdrawn.
func (e *evictions) ready(now time.Duration, id GuestID, n int) (wait time.Duration, ok bool) {
	if e.rate.PerSecond < 0 {
		return 0, true
	}
	b := e.buckets.get(id)
	if b == nil {
		return 0, false
	}
	b.taken = max(b.taken-(now-b.at).Seconds()*e.rate.PerSecond, 0)
	b.at = now
	need := min(float64(n), e.rate.Burst) - e.rate.Burst + b.taken
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
type evictor struct {
	evictions evictions
	// running are the indexes of the state's launches that are on the GPU and leave when told, in
	// order of guest. listed reports whether they are those of the newest state.
	running []int
	listed  bool
}

// newState drops what is known of the launches.
func (e *evictor) newState() { e.listed = false }

// list finds the launches that can be evicted, once for a state.
func (e *evictor) list(st *State) {
	if e.listed {
		return
	}
	e.listed, e.running = true, e.running[:0]
	for i := range st.Launches {
		if l := &st.Launches[i]; l.Running && !l.Evicting && l.Evictable {
			e.running = append(e.running, i)
		}
	}
	slices.SortFunc(e.running, func(a, b int) int {
		return cmp.Or(cmp.Compare(st.Launches[a].Guest, st.Launches[b].Guest), cmp.Compare(a, b))
	})
}

// clear adds verdicts to v that evict the launches that a suspended guest has on the GPU, if they
// leave when told. The evictions are for the guest's own sake and count against its own rate. A
// launch that is likely to end before it could leave is left alone.
func (e *evictor) clear(now time.Duration, st *State, id GuestID, v []Verdict) []Verdict {
	e.list(st)
	first, _ := slices.BinarySearchFunc(e.running, id, func(i int, id GuestID) int { return cmp.Compare(st.Launches[i].Guest, id) })
	for _, i := range e.running[first:] {
		l := &st.Launches[i]
		if l.Guest != id {
			break
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
