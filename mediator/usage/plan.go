package usage

// The lengths of the rolled up intervals, in seconds. Hours and days are those of UTC.
const (
	hour = 60 * 60
	day  = 24 * hour
	// era is for queries over long times alone.
	era = 28 * day
)

// level is one of the tables of sums, from the finest to the coarsest.
type level int

const (
	fine level = iota
	byHour
	byDay
	byEra
	levels
)

// lengths returns the lengths of the levels' intervals, in seconds.
func lengths(interval int64) [levels]int64 { return [levels]int64{interval, hour, day, era} }

// segment is a part of a query that one level answers. From and to are seconds of Unix time.
type segment struct {
	level    level
	from, to int64
}

// plan returns which levels, none coarser than coarsest, answer a query of the time from from to to,
// so that each instant is counted once and long times are read as long intervals. removed is, for
// each level, the time before which its rows were removed. Where the fine rows are gone the query is
// extended to whole hours, and where those are gone to whole days.
func plan(from, to, interval int64, removed [levels]int64, coarsest level) []segment {
	if to <= from {
		return nil
	}
	l := lengths(interval)
	from, to = floor(from, l[fine]), ceil(to, l[fine])
	for v := fine; v < byDay; v++ {
		if from < removed[v] {
			from = floor(from, l[v+1])
		}
		if to < removed[v] {
			to = ceil(to, l[v+1])
		}
	}
	var all []segment
	for v := byDay; v >= coarsest && v > fine; v-- {
		// Older rows than these levels have are coarser than what is wanted.
		if cut := min(to, removed[v-1]); v > coarsest && from < cut {
			all, from = cover(all, from, cut, v, l), cut
		}
	}
	return cover(all, from, to, coarsest, l)
}

// cover appends segments that cover a time: whole intervals of a level, and what is left on both
// sides of them by the levels below.
func cover(all []segment, from, to int64, v level, l [levels]int64) []segment {
	if to <= from {
		return all
	}
	first, last := ceil(from, l[v]), floor(to, l[v])
	switch {
	case v == fine:
		return append(all, segment{v, from, to})
	case first >= last:
		return cover(all, from, to, v-1, l)
	}
	all = cover(all, from, first, v-1, l)
	all = append(all, segment{v, first, last})
	return cover(all, last, to, v-1, l)
}

// floor returns the largest multiple of n that is at most t, also before 1970.
func floor(t, n int64) int64 {
	r := t % n
	if r < 0 {
		r += n
	}
	return t - r
}

// ceil returns the least multiple of n that is at least t.
func ceil(t, n int64) int64 { return -floor(-t, n) }

// coarsest returns the coarsest level whose intervals lie in windows of step seconds; 0 is one
// window.
func coarsest(step int64) level {
	switch {
	case step == 0:
		return byEra
	case step%day == 0:
		return byDay
	default:
		return byHour
	}
}
