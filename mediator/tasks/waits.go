package tasks

import "time"

// WaitBounds are the upper bounds of the intervals in which waits are counted.
var WaitBounds = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 30 * time.Minute, 3 * time.Hour,
}

// Waits counts for how long tasks waited for a GPU.
type Waits struct {
	Count uint64
	Sum   time.Duration
	// In counts those up to each of [WaitBounds] and longer than the bound before.
	In [len(WaitBounds)]uint64
}

func (w *Waits) add(d time.Duration) {
	w.Count++
	w.Sum += d
	for i, bound := range WaitBounds {
		if d <= bound {
			w.In[i]++
			return
		}
	}
}
