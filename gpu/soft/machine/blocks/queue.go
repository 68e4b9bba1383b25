package blocks

// event is a future event: the wait of a slot's block is over, or, for an id of ^sm, the first of
// an SM's blocks has finished issuing. Of the events of an SM only the newest counts.
type event struct {
	at float64
	id int32
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.id < o.id }

// queue is a heap of events by time. Ties are ordered by id so that runs are reproducible.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !e.before(h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top := h[0]
	last := h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		best := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].before(h[best]) {
				best = c
			}
		}
		if !h[best].before(last) {
			break
		}
		h[i] = h[best]
		i = best
	}
	h[i] = last
	return top
}
