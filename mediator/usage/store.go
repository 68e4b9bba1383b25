package usage

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// pageSize is SQLite's, in bytes.
const pageSize = 4096

// storeOptions say where a store is. now is the time since the host's boot of the name boot.
type storeOptions struct {
	path     string
	interval int64 // seconds
	maxBytes int64
	boot     string
	now      time.Duration
	// unsynced leaves it to the kernel when what is written reaches the disk.
	unsynced bool
}

// store is the database. It is used by one goroutine at a time, but for scan.
type store struct {
	o        storeOptions
	write    *sql.DB // one connection
	read     *sql.DB
	subjects map[Subject]int64
	add      [levels]*sql.Stmt
	mark     *sql.Stmt
	// number is that of the newest batch that is in the database.
	number uint64
	// boot and made say when the database was made.
	boot string
	made time.Duration
	// trusted is the record's clock as it was last saved.
	trusted time.Time
}

// openStore opens a database, or makes one.
func openStore(o storeOptions) (_ *store, err error) {
	if err := os.MkdirAll(filepath.Dir(o.path), 0o700); err != nil {
		return nil, err
	}
	// The file is made here so that only the daemon's user can read it; SQLite gives its other files
	// the same mode.
	f, err := os.OpenFile(o.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %v: want a regular file; remove it", o.path, st.Mode())
	}
	if err != nil {
		return nil, err
	}
	s := &store{o: o, subjects: make(map[Subject]int64)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.write, err = connect(o, 1, false); err != nil {
		return nil, err
	}
	if err = s.prepare(); err != nil {
		return nil, err
	}
	s.read, err = connect(o, 2, true)
	return s, err
}

// connect returns connections to the database.
func connect(o storeOptions, n int, readOnly bool) (*sql.DB, error) {
	q := url.Values{"_pragma": {"busy_timeout(5000)", "foreign_keys(0)", "trusted_schema(0)", "cell_size_check(1)"}}
	if readOnly {
		q["_pragma"] = append(q["_pragma"], "query_only(1)")
	} else {
		sync := "synchronous(FULL)"
		if o.unsynced {
			sync = "synchronous(OFF)"
		}
		q["_pragma"] = append(q["_pragma"], "journal_mode(WAL)", sync, "wal_autocheckpoint(1000)", "journal_size_limit(8388608)",
			"max_page_count("+strconv.FormatInt(max(o.maxBytes/pageSize, 64), 10)+")")
		q.Set("_txlock", "immediate")
	}
	u := url.URL{Scheme: "file", Path: o.path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// prepare makes what the database lacks, and reads what is in it.
func (s *store) prepare() error {
	version, err := s.meta(keyVersion)
	if err != nil && !isNoTable(err) {
		return err
	}
	if version > storeVersion {
		return fmt.Errorf("%s is of version %d, and this vgpud knows versions up to %d: a later vgpud made it; install that, or move the file away", s.o.path, version, storeVersion)
	}
	ctx := context.Background()
	switch version {
	case 0:
		err = s.make(ctx)
	case 1:
		err = s.upgrade(ctx)
	}
	if err != nil {
		return err
	}
	for v := range levels {
		if s.add[v], err = s.write.Prepare(fmt.Sprintf(upsert, tables[v])); err != nil {
			return err
		}
	}
	s.mark, err = s.write.Prepare(`INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (life) DO UPDATE SET used_ns = excluded.used_ns,
		suspended_ns = excluded.suspended_ns, kernels = excluded.kernels, evictions = excluded.evictions, at = excluded.at,
		unaccounted_ns = excluded.unaccounted_ns`)
	if err != nil {
		return err
	}
	var number, made, trusted int64
	number, err = s.meta(keyNumber)
	if err == nil {
		made, err = s.meta(keyMade)
	}
	if err == nil {
		trusted, err = s.meta(keyTrusted)
	}
	if err != nil {
		return err
	}
	if err := s.write.QueryRow("SELECT value FROM meta WHERE key = ?", keyBoot).Scan(&s.boot); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	s.number, s.made = uint64(number), time.Duration(made)
	if trusted > 0 {
		s.trusted = time.Unix(trusted, 0)
	}
	return nil
}

// inTx calls f in a transaction, which is on the disk when inTx returns nil. After an error it may
// be there or not.
func (s *store) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// marks returns the marks of guests.
func (s *store) marks() (all []Mark, err error) {
	rows, err := s.write.Query("SELECT life, used_ns, suspended_ns, kernels, evictions, unaccounted_ns FROM marks")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m Mark
		var kernels, evictions int64
		if err := rows.Scan(&m.Life, &m.Used, &m.Suspended, &kernels, &evictions, &m.Unaccounted); err != nil {
			return nil, err
		}
		m.Kernels, m.Evictions = uint64(max(kernels, 0)), uint64(max(evictions, 0))
		all = append(all, m)
	}
	return all, rows.Err()
}

// existedAt reports whether the database existed when a guest's process began.
func (s *store) existedAt(began time.Duration) bool {
	const tick = 10 * time.Millisecond // by which the kernel rounds that down
	return s.boot != s.o.boot || began+tick > s.made
}

// commit writes a batch, unless it is there already.
func (s *store) commit(ctx context.Context, b *batch, now time.Time) error {
	var fresh map[Subject]int64
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		var have int64
		if err := tx.QueryRow("SELECT value FROM meta WHERE key = ?", keyNumber).Scan(&have); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if uint64(have) >= b.number {
			return nil
		}
		var err error
		if fresh, err = s.writeRows(tx, b.rows); err != nil {
			return err
		}
		mark := tx.Stmt(s.mark)
		for _, m := range b.marks {
			if _, err := mark.Exec(m.Life, int64(m.Used), int64(m.Suspended), integer(m.Kernels), integer(m.Evictions), now.Unix(), int64(m.Unaccounted)); err != nil {
				return err
			}
		}
		for life := range b.ended {
			if _, err := tx.Exec("DELETE FROM marks WHERE life = ?", life); err != nil {
				return err
			}
		}
		return setMeta(tx, keyNumber, int64(b.number))
	})
	if err != nil {
		return err
	}
	s.number = max(s.number, b.number)
	for k, id := range fresh {
		s.subjects[k] = id
	}
	return nil
}

// maxSubjects bounds the subjects whose numbers are remembered.
const maxSubjects = 50_000

// writeRows adds rows to all levels, and returns the numbers of subjects that were looked up.
func (s *store) writeRows(tx *sql.Tx, rows map[key]Sums) (fresh map[Subject]int64, err error) {
	if len(s.subjects) > maxSubjects {
		clear(s.subjects)
	}
	fresh = make(map[Subject]int64)
	var add [levels]*sql.Stmt
	for v := range levels {
		add[v] = tx.Stmt(s.add[v])
	}
	type row struct {
		start, id int64
		sums      Sums
	}
	sorted := make([]row, 0, len(rows))
	for k, sums := range rows {
		id, ok := s.subjects[k.subject]
		if !ok {
			id, ok = fresh[k.subject]
		}
		if !ok {
			if id, err = subjectID(tx, &k.subject); err != nil {
				return nil, err
			}
			fresh[k.subject] = id
		}
		sorted = append(sorted, row{k.start, id, sums})
	}
	// In the key's order the database's pages become full.
	slices.SortFunc(sorted, func(a, b row) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.id, b.id)) })
	for i := range sorted {
		w, sums := &sorted[i], &sorted[i].sums
		energy := sql.NullInt64{Int64: sums.EnergyMillijoules, Valid: sums.EnergyKnown}
		for v, length := range lengths(s.o.interval) {
			_, err := add[v].Exec(floor(w.start, length), w.id, sums.GPUMicros, sums.Kernels, sums.Evictions, sums.SuspendedMicros, sums.MemoryKiBSeconds, energy, sums.UnaccountedMicros)
			if err != nil {
				return nil, err
			}
		}
	}
	return fresh, nil
}

// subjectID returns the number of a subject, which it gets if it has none.
func subjectID(tx *sql.Tx, s *Subject) (id int64, err error) {
	args := []any{s.VM, s.Domain, s.DomainUUID, s.Owner, s.Project, s.GPU}
	if _, err := tx.Exec("INSERT OR IGNORE INTO subjects (vm, domain, uuid, owner, project, gpu) VALUES (?, ?, ?, ?, ?, ?)", args...); err != nil {
		return 0, err
	}
	err = tx.QueryRow("SELECT id FROM subjects WHERE vm = ? AND domain = ? AND uuid = ? AND owner = ? AND project = ? AND gpu = ?", args...).Scan(&id)
	return id, err
}

// integer returns n as SQLite stores it.
func integer(n uint64) int64 { return int64(min(n, 1<<63-1)) }

// removePiece is how many intervals are removed at once, so that a batch needn't wait for long.
const removePiece = 10

// remove removes a level's rows before a time.
func (s *store) remove(ctx context.Context, v level, before int64) error {
	var first sql.NullInt64
	if err := s.write.QueryRowContext(ctx, "SELECT min(start) FROM "+tables[v]).Scan(&first); err != nil || !first.Valid || first.Int64 >= before {
		return err
	}
	// Queries use the next level as soon as the first rows are gone.
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)", keyRemoved[v], before)
		return err
	})
	for piece := lengths(s.o.interval)[v] * removePiece; err == nil && first.Valid && first.Int64 < before; {
		err = s.inTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.Exec("DELETE FROM "+tables[v]+" WHERE start < ?", min(first.Int64+piece, before))
			return err
		})
		if err == nil {
			err = s.write.QueryRowContext(ctx, "SELECT min(start) FROM "+tables[v]).Scan(&first)
		}
	}
	return err
}

// shrink removes the oldest quarter of the finest level that has more than one interval of the next
// level, since the database is as large as it may be. It reports what it removed.
func (s *store) shrink(ctx context.Context) (string, error) {
	for v := range levels {
		boundary := lengths(s.o.interval)[min(v+1, byEra)]
		if v == byDay {
			boundary = day
		}
		var first, last sql.NullInt64
		if err := s.write.QueryRowContext(ctx, "SELECT min(start), max(start) FROM "+tables[v]).Scan(&first, &last); err != nil {
			return "", err
		}
		before := floor(first.Int64+(last.Int64-first.Int64)/4, boundary)
		if before <= first.Int64 {
			before = ceil(first.Int64+1, boundary)
		}
		if !first.Valid || before > last.Int64 {
			continue
		}
		return fmt.Sprintf("%s before %s", tables[v], time.Unix(before, 0).UTC().Format(time.RFC3339)), s.remove(ctx, v, before)
	}
	return "", errors.New("nothing in it can be removed: raise max_bytes")
}

// tidy removes the marks of guests that are not known any more and were not seen since a time, and
// saves the record's clock.
func (s *store) tidy(ctx context.Context, known func(string) bool, before, trusted time.Time) error {
	rows, err := s.write.QueryContext(ctx, "SELECT life FROM marks WHERE at < ?", before.Unix())
	if err != nil {
		return err
	}
	var old []string
	for rows.Next() {
		var life string
		if err := rows.Scan(&life); err != nil {
			return errors.Join(err, rows.Close())
		}
		if !known(life) {
			old = append(old, life)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		for _, life := range old {
			if _, err := tx.Exec("DELETE FROM marks WHERE life = ?", life); err != nil {
				return err
			}
		}
		return setMeta(tx, keyTrusted, trusted.Unix())
	})
}

// close closes the database.
func (s *store) close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// full reports whether the database is as large as it may be, or nearly so.
func (s *store) full() bool {
	var pages, most int64
	err := errors.Join(s.write.QueryRow("PRAGMA page_count").Scan(&pages), s.write.QueryRow("PRAGMA max_page_count").Scan(&most))
	return err == nil && pages >= most-most/64
}
