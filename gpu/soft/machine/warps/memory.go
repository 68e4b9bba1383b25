package warps

// line is a line of a cache.
type line struct {
	number uint64 // plus one; 0 if the line is empty
	used   uint64 // when it was last used
	ready  uint64 // when it is there
	dirty  bool
}

// cache is a set-associative cache with the least recently used line replaced.
type cache struct {
	lines []line
	ways  int
	sets  uint64
	uses  uint64
}

func newCache(bytes, ways int) cache {
	n := bytes / 128
	return cache{lines: make([]line, n), ways: ways, sets: uint64(n / ways)}
}

// set returns the lines that may hold a number.
func (c *cache) set(number uint64) []line {
	i := int((number^number>>9^number>>18)%c.sets) * c.ways
	return c.lines[i : i+c.ways]
}

// find returns the line of a number, or nil.
func (c *cache) find(number uint64) *line {
	set := c.set(number)
	for i := range set {
		if set[i].number == number+1 {
			c.uses++
			set[i].used = c.uses
			return &set[i]
		}
	}
	return nil
}

// insert makes room for a number and reports whether what was there must be written back.
func (c *cache) insert(number, ready uint64) (l *line, writeBack bool) {
	set := c.set(number)
	l = &set[0]
	for i := range set {
		if set[i].used < l.used {
			l = &set[i]
		}
	}
	writeBack = l.number != 0 && l.dirty
	c.uses++
	*l = line{number: number + 1, used: c.uses, ready: ready}
	return l, writeBack
}

// memory is what cores share: the GPU's cache and the memory behind it. Requests are served in the
// order in which they are made.
type memory struct {
	c      *Config
	l2     cache
	l2Free uint64 // in sixteenths of a cycle
	free   uint64 // the memory's
	moved  uint64 // lines
}

const sixteenths = 16

// serve has a request occupy what is free at *free for each sixteenths, and returns the cycle in
// which it is served.
func serve(free *uint64, now, each uint64) uint64 {
	*free = max(*free, now*sixteenths) + each
	return (*free + sixteenths - 1) / sixteenths
}

// load returns when a line that is not in a core's cache is there.
func (m *memory) load(number, now uint64) uint64 {
	at := serve(&m.l2Free, now, m.c.L2Line)
	if l := m.l2.find(number); l != nil {
		return max(l.ready, at+m.c.L2Latency)
	}
	done := m.move(at) + m.c.MemoryLatency
	m.fill(number, at, done)
	return done
}

// store writes a line to the GPU's cache, and returns when that has accepted it.
func (m *memory) store(number, now uint64) uint64 {
	at := serve(&m.l2Free, now, m.c.L2Line)
	l := m.l2.find(number)
	if l == nil {
		l = m.fill(number, at, at)
	}
	l.dirty = true
	return at
}

// fill makes room in the GPU's cache.
func (m *memory) fill(number, now, ready uint64) *line {
	l, writeBack := m.l2.insert(number, ready)
	if writeBack {
		m.move(now)
	}
	return l
}

// move has the memory move a line.
func (m *memory) move(now uint64) uint64 {
	m.moved++
	return serve(&m.free, now, m.c.MemoryLine)
}
