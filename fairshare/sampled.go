package fairshare

import "time"

// sampled is disengaged fair queueing with NEON's sampling, as it is published with LoGA
// (github.com/jkehne/loga, neon_module/neon_sampling.c: event_sampling, update_now,
// update_sampled_task, update_vtimes), kept as a baseline. It reads no registers and goes by the
// guests' requests to the GPU ([Requests]).
//
// In each round it suspends all guests until their requests on the GPU have ended, lets each guest
// run alone in turn, and then lets all run freely for five times as long. A guest's time alone
// gives the mean length of its calls, and in proportion to these the guests are charged for the
// free run. A guest that is ahead of the least virtual time by more than a free run is held back:
// it sits out the next free run and is not sampled. Meanwhile it is charged nothing but counts in
// the least virtual time; a guest that requested nothing while it was sampled does not count.
//
// Completions are noticed at a rate of 1 kHz, requests as they come. So a request that is followed
// by another one before its completion is noticed ends with that one, and otherwise when its
// completion is noticed. Requests on several channels at a time take as long as they take together;
// the published code adds up the channels, which makes them seem longer.
//
// If no guest has work it goes on all the same; the published code waits for work before it samples
// again. A command that does not end keeps all guests from the GPU until its time limit, as it does
// there.
type sampled struct {
	accounts
	options Options
	// stage
	stage    stage
	begun    time.Duration        // when the stage began, or the current guest's time alone
	current  int                  // index in turn of the guest that is alone
	turn     []GuestID            // guests that are sampled or skipped in this round
	back     map[GuestID]bool     // guests that are held back
	samples  map[GuestID]*sample  // of this round
	sampling time.Duration        // time that sampling took in this round, with that of skipped guests
	free     time.Duration        // length of the free run
	over     time.Duration        // since when the current guest's time is over, but not its requests; 0: it is not
	counts   map[GuestID]Requests // as of the newest poll
	verdicts []Verdict
}

// stage is a part of NEON's round.
type stage uint8

const (
	draining stage = iota // all guests are suspended until nothing runs
	alone
	freeRun
)

// sample is what was seen of a guest while it was alone.
type sample struct {
	requests, calls uint64
	took            time.Duration
	busy            bool          // whether a request is under way, as far as is known
	since           time.Duration // since when it is
}

// neonSample is how long a guest is sampled, and neonFreeRuns how many times as long as all samples
// together the free run is.
const (
	// neonSample is how long a guest is sampled, and neonFreeRuns how many times as long as all
	// samples together the free run is.
	neonSample   = time.Millisecond
	neonFreeRuns = 5
	// neonPoll is the time between two polls for completions.
	neonPoll = time.Millisecond
	// enoughRequests is the number of requests after which a guest is not sampled any longer.
	enoughRequests = 96
)

func newSampled(o Options) *sampled {
	if o.Sample <= 0 {
		o.Sample = neonSample
	}
	return &sampled{options: o, back: make(map[GuestID]bool), samples: make(map[GuestID]*sample), counts: make(map[GuestID]Requests)}
}

// Decide implements [Policy]. It keeps its own time, whatever phases are reported.
func (p *sampled) Decide(now time.Duration, _ Event, st State) ([]Verdict, time.Duration) {
	p.verdicts = p.verdicts[:0]
	p.sync(&st)
	for p.step(now, &st) {
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		p.counts[g.ID] = g.Requests
		switch held := !p.admitted(g.ID); {
		case held && !g.Suspended:
			p.verdicts = append(p.verdicts, Verdict{Guest: g.ID, Action: Suspend, Reason: Sampled})
		case !held && g.Suspended:
			p.verdicts = append(p.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
	p.forget()
	return p.verdicts, p.wait(now)
}

// admitted reports whether a guest may run now.
func (p *sampled) admitted(id GuestID) bool {
	switch p.stage {
	case alone:
		return p.over == 0 && p.turn[p.current] == id
	case freeRun:
		return !p.back[id]
	}
	return false
}

// wait returns the time until the next poll.
func (p *sampled) wait(now time.Duration) time.Duration {
	if p.stage == freeRun {
		return p.begun + p.free - now
	}
	return neonPoll
}

// forget drops records of guests that left.
func (p *sampled) forget() {
	for id := range p.counts {
		if p.get(id) == nil {
			delete(p.counts, id)
			delete(p.back, id)
			delete(p.samples, id)
		}
	}
}

// step goes on to the next stage, or the next guest, if it is time for that, and reports whether it
// did.
func (p *sampled) step(now time.Duration, st *State) bool {
	switch p.stage {
	case freeRun:
		if now < p.begun+p.free {
			return false
		}
		p.stage = draining
	case draining:
		if inFlight(st) {
			return false
		}
		p.stage, p.current, p.sampling = alone, -1, 0
		p.turn = p.turn[:0]
		for i := range st.Guests {
			p.turn = append(p.turn, st.Guests[i].ID)
		}
		clear(p.samples)
		p.next(now, st)
	case alone:
		return p.sample(now, st)
	}
	return true
}

// sample polls the guest that is alone, and reports whether its time and its requests are over.
func (p *sampled) sample(now time.Duration, st *State) bool {
	id := p.turn[p.current]
	g := find(st, id)
	if g == nil { // it left
		p.next(now, st)
		return true
	}
	s := p.samples[id]
	p.look(now, g, s)
	if p.over == 0 && (now-p.begun >= p.options.Sample || s.requests >= enoughRequests) {
		p.over = now
	}
	if p.over == 0 || g.Requests.UnderWay {
		return false
	}
	p.sampling += now - p.over
	p.next(now, st)
	return true
}

// poll adds what became of the guest's requests since the newest poll.
func (p *sampled) look(now time.Duration, g *Guest, s *sample) {
	before := p.counts[g.ID]
	completed := g.Requests.Completed - before.Completed
	s.requests += completed
	s.calls += g.Requests.Calls - before.Calls
	if !s.busy && (completed > 0 || g.Requests.UnderWay) {
		s.busy, s.since = true, g.Requests.First
	}
	if s.busy && completed > 0 {
		s.took += now - s.since
		s.since, s.busy = now, g.Requests.UnderWay
	}
	p.counts[g.ID] = g.Requests
}

// next lets the next guest that is not held back run alone. After the last it begins the free run.
// Skipped guests count as sampled in the length of the free run.
func (p *sampled) next(now time.Duration, st *State) {
	p.over = 0
	for p.current++; p.current < len(p.turn); p.current++ {
		g := find(st, p.turn[p.current])
		if g == nil {
			continue
		}
		p.sampling += p.options.Sample
		if p.back[g.ID] {
			continue
		}
		p.begun = now
		p.samples[g.ID] = &sample{}
		p.counts[g.ID] = g.Requests // the free run is no part of its sample
		return
	}
	if p.sampling == 0 {
		p.sampling = p.options.Sample
	}
	p.stage, p.begun, p.free = freeRun, now, neonFreeRuns*p.sampling
	p.settle(st)
}

// call returns the mean length of the guest's calls. One call may be several requests, in whole
// numbers.
func (s *sample) call() float64 {
	if s == nil || s.requests == 0 {
		return 0
	}
	perCall := uint64(1)
	if s.calls > 0 {
		perCall = (s.requests + s.requests%s.calls) / s.calls
	}
	return float64(perCall) * float64(s.took) / float64(s.requests)
}

// settle charges the next free run by what was sampled, and decides which guests are held back in
// it.
func (p *sampled) settle(st *State) {
	p.scale(st)
	var total float64
	active := false // whether any guest was sampled with requests, or held back
	for i := range st.Guests {
		id := st.Guests[i].ID
		total += p.samples[id].call()
		active = active || p.counted(id)
	}
	for i := range st.Guests {
		if g := &st.Guests[i]; total > 0 {
			p.charge(i, g, p.samples[g.ID].call()/total*float64(p.free))
		}
	}
	threshold := 0.0
	if active {
		p.advance(st, func(g *Guest) bool { return p.counted(g.ID) })
		if threshold = float64(p.free); p.options.Threshold > 0 {
			threshold = float64(p.options.Threshold)
		}
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		p.back[g.ID] = p.lead(i) > threshold
	}
}

// counted reports whether a guest counts in the least virtual time: it was held back, or sampled
// with requests.
func (p *sampled) counted(id GuestID) bool {
	s := p.samples[id]
	return p.back[id] || s != nil && s.requests > 0
}

// inFlight reports whether the GPU has any guest's requests.
func inFlight(st *State) bool {
	for i := range st.Guests {
		if st.Guests[i].Requests.UnderWay {
			return true
		}
	}
	return false
}

// find returns the guest with an ID, nil if there is none.
func find(st *State, id GuestID) *Guest {
	for i := range st.Guests {
		if st.Guests[i].ID == id {
			return &st.Guests[i]
		}
	}
	return nil
}
