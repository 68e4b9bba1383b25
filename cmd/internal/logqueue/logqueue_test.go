package logqueue

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestReaderThatStandsStill: who logs goes on though nobody reads, and what is lost is said once
// somebody does.
func TestReaderThatStandsStill(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := New(slog.NewTextHandler(w, nil))
	log := slog.New(h).With("gpu", "gpu0")
	const most = 1 << 20 // more than the pipe and the queue have
	text := strings.Repeat("x", 1000)
	lines := 0
	for h.q.lost.Load() == 0 {
		if lines++; lines > most {
			t.Fatal("nothing is lost")
		}
		log.Info(text)
	}
	got := make(chan string, 1)
	go func() {
		var all strings.Builder
		b := make([]byte, 1<<16)
		for {
			n, err := r.Read(b)
			all.Write(b[:n])
			if err != nil {
				got <- all.String()
				return
			}
		}
	}()
	last := slog.NewRecord(time.Now(), slog.LevelInfo, "the last", 0)
	h.q.records <- record{h.Handler, last} // once there is room
	lines++
	h.Stop(time.Minute)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all, lost := <-got, 0
	for _, f := range strings.Fields(all) {
		if n, ok := strings.CutPrefix(f, "lost="); ok {
			n, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			lost += n
		}
	}
	if n := strings.Count(all, "\n"); lost == 0 || n+lost != lines {
		t.Errorf("%d lines, and %d lost, of %d", n, lost, lines)
	}
	if !strings.Contains(all, `msg="the last"`) {
		t.Error("the last record is not written")
	}
}
