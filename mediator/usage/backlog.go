package usage

import "time"

// key is the place of a row: whose, and when its interval began, in seconds of Unix time.
type key struct {
	start   int64
	subject Subject
}

// batch is what is written in one transaction. A batch that may have been written is written again
// with the same number, which the store then knows.
type batch struct {
	number uint64
	rows   map[key]Sums
	marks  map[string]Mark
	// ended are guests whose marks are not needed any more.
	ended map[string]bool
}

func (b *batch) empty() bool { return len(b.rows) == 0 && len(b.marks) == 0 && len(b.ended) == 0 }

// maxBacklog bounds the rows that wait for a store which fails, and maxBacklogEnded the guests that
// ended meanwhile.
const (
	maxBacklog      = 20_000
	maxBacklogEnded = 20_000
)

// backlog is what waits to be written. It is pure.
type backlog struct {
	batch
	// length is that of the intervals to which rows were coarsened, in seconds; 0 is none.
	length int64
	// lost is what did not fit.
	lost Sums
}

// add adds what a guest used in an interval, and its mark.
func (b *backlog) add(start time.Time, s Subject, used Sums, m Mark) {
	b.mark(m)
	if !used.zero() {
		b.addRow(key{start.Unix(), s}, used)
	}
}

// mark adds a guest's mark.
func (b *backlog) mark(m Mark) {
	if b.marks == nil {
		b.marks = make(map[string]Mark)
	}
	b.marks[m.Life] = m
}

func (b *backlog) addRow(k key, used Sums) {
	if b.rows == nil {
		b.rows = make(map[key]Sums)
	}
	k.start = floor(k.start, max(b.length, 1))
	for _, length := range []int64{hour, day} {
		if _, ok := b.rows[k]; ok || len(b.rows) < maxBacklog || b.length >= length {
			continue
		}
		b.coarsen(length)
		k.start = floor(k.start, length)
	}
	if _, ok := b.rows[k]; !ok && len(b.rows) >= maxBacklog {
		b.lost = b.lost.Add(used)
		return
	}
	b.rows[k] = b.rows[k].Add(used)
}

// coarsen moves all rows to the beginning of their hour or day, so that fewer are left.
func (b *backlog) coarsen(length int64) {
	rows := make(map[key]Sums, len(b.rows))
	for k, s := range b.rows {
		k.start = floor(k.start, length)
		rows[k] = rows[k].Add(s)
	}
	b.rows, b.length = rows, length
}

// end notes that a guest has ended, and that its usage is complete.
func (b *backlog) end(life string) {
	if b.ended == nil {
		b.ended = make(map[string]bool)
	}
	delete(b.marks, life)
	if len(b.ended) < maxBacklogEnded {
		b.ended[life] = true // otherwise its mark is removed by age
	}
}

// take returns what waits, as a batch with a number, and leaves nothing.
func (b *backlog) take(number uint64) *batch {
	t := b.batch
	t.number = number
	b.batch, b.length = batch{}, 0
	return &t
}
