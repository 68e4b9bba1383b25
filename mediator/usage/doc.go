// Package usage keeps the record of what guests used of the host's GPUs, for billing: in a SQLite
// database, one row for each guest, GPU and interval, and the same sums by hour and by day. It
// outlives guests, daemons and hosts. It decides nothing: budgets (package fairshare) and people
// ask it.
//
// # Flow
//
// A [Recorder] asks the daemon every few seconds for a [Sample] of each guest: sums since the
// guest's beginning, which only grow. A meter turns samples into what is new since the last one, and
// a backlog collects that by interval and subject until a store has written it. A store writes, in
// one transaction, the three sums of each subject, and a mark of each guest: the sums up to which
// its usage is recorded. So whenever the daemon is killed, the next one records what is above the
// marks: nothing is recorded twice, and nothing is lost that the guests' control pages still know.
//
// The meter, the backlog, the plan of a query, times and the export are pure; store.go and storeread.go
// alone know SQL. recorder.go collects and writes, reports.go answers queries, and problems.go says what
// is wrong. A store that fails (a full or read-only disk) leaves what it was given in the backlog, whose
// size is bounded. A corrupt database is renamed, and a new one started.
//
// # Times
//
// Rows have the host's wall time, in UTC, but for jumps of more than a day, which are followed a day
// later (retention.go).
//
// # Locks
//
// In this order: Recorder.writing, Recorder.mu, and those of package database/sql. The daemon's
// callback is called with writing held, so it must not call the recorder.
package usage
