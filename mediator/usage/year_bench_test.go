package usage

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
)

// BenchmarkYear makes the record of 1,000 guests that were never idle for a year, with the default
// retention, and asks it as vgpuctl usage does. It reports the size of the database.
func BenchmarkYear(b *testing.B) {
	const guests, days = 1000, 365
	path := filepath.Join(b.TempDir(), "usage.sqlite")
	end := time.Date(2026, 11, 24, 18, 34, 0, 0, time.UTC)
	r := Open(Options{
		Path: path, Clock: new(clock.Sim), Wall: func() time.Time { return end }, Log: slog.New(slog.DiscardHandler), Samples: func() []Sample { return nil }, unsynced: true,
	})
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	})
	size := func() float64 {
		if _, err := r.store.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			b.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		return float64(st.Size()) / 1e6
	}
	run := func(query string, args ...any) {
		if _, err := r.store.write.Exec(query, args...); err != nil {
			b.Fatal(err)
		}
	}
	run(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO subjects
		SELECT i, format('instance-%08x', i), format('instance-%08x', i), format('5d4b2f6e-0b0a-4c56-9d3f-%012x', i),
			format('%032x', i % 100), format('%032x', i % 50), format('gpu%d', i % 8) FROM n`, guests)
	var before float64
	for v, length := range lengths(60) {
		to := floor(end.Unix(), length) + length
		from := end.AddDate(0, 0, -days).Unix()
		if at, ok := (&Keep{}).horizon(level(v), end); ok {
			from = max(from, at)
		}
		from = floor(from, length)
		// Numbers of as many digits as those of a GPU that 125 guests share.
		run(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + ? FROM n WHERE i + ? < ?) INSERT INTO %s
			SELECT n.i, s.id, ? * (7000 + abs(random()) %% 2000), ? * (abs(random()) %% 2000), ? * (abs(random()) %% 3), ? * (abs(random()) %% 900000),
				? * (abs(random()) %% 4000000), ? * (abs(random()) %% 5000) FROM n, subjects s`, tables[v]),
			from, length, length, to, length, length, length, length, length, length)
		run("INSERT OR REPLACE INTO meta VALUES (?, ?)", keyRemoved[v], from)
		now := size()
		b.Logf("%s of %d days: %.0f MB", tables[v], (to-from)/day, now-before)
		before = now
	}
	for _, c := range []struct {
		name string
		q    Query
	}{
		{"year-by-vm", Query{From: end.AddDate(-1, 0, 1), To: end, By: ByVM}},
		{"year-by-owner", Query{From: end.AddDate(-1, 0, 1), To: end, By: ByOwner}},
		{"year-by-day", Query{From: end.AddDate(-1, 0, 1), To: end, By: ByDay}},
		{"year-of-one-owner-by-day", Query{From: end.AddDate(-1, 0, 1), To: end, By: ByDay, Only: Subject{Owner: fmt.Sprintf("%032x", 7)}}},
		{"month-by-project", Query{From: end.AddDate(0, -1, 0), To: end, By: ByProject}},
		{"day-by-vm", Query{From: end.Add(-24 * time.Hour), To: end, By: ByVM}},
	} {
		b.Run(c.name, func(b *testing.B) {
			start := processorTime(b)
			for b.Loop() {
				rep, err := r.Report(b.Context(), c.q)
				if err != nil || len(rep.Rows) == 0 {
					b.Fatal(len(rep.Rows), err)
				}
			}
			b.ReportMetric(before, "MB")
			b.ReportMetric((processorTime(b)-start).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime returns the processor time that the process has used, which other work on the host
// does not change much.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
