package workload

import (
	"testing"
	"time"
)

func TestBacklogSumsTheTimeWithWorkWaiting(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	var b backlog
	b.start(begin)
	for range Backlog - 1 {
		b.change(1, at(1))
	}
	b.change(1, at(3)) // backlogged from 3
	b.change(1, at(4))
	b.change(-1, at(5))
	b.change(-1, at(9)) // to 9
	b.change(1, at(8))  // told late: from 9 on
	for _, c := range []struct {
		now              int
		busy, backlogged time.Duration
	}{{9, 9 * time.Second, 6 * time.Second}, {11, 11 * time.Second, 8 * time.Second}} {
		busy, backlogged := b.sums(at(c.now))
		if busy != c.busy || backlogged != c.backlogged {
			t.Errorf("at %d s: %v, %v of it backlogged; want %v, %v", c.now, busy, backlogged, c.busy, c.backlogged)
		}
	}
}
