package usage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// removed returns the time before which each level's rows were removed.
func (s *store) removed(ctx context.Context) (at [levels]int64, err error) {
	for v := range levels {
		err := s.read.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", keyRemoved[v]).Scan(&at[v])
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return at, err
		}
	}
	return at, nil
}

// scan returns the sums in a segment of the subjects that match:
// in windows of step seconds, or without windows if step is 0, and of each subject or, if
// bySubject is false, of all together.
func (s *store) scan(ctx context.Context, seg segment, step int64, bySubject bool, matches func(Subject) bool) (parts []part, err error) {
	subjects, ids, err := s.matching(ctx, matches)
	if err != nil || len(subjects) == 0 {
		return nil, err
	}
	window, who := "0", "0"
	var groups []string
	switch {
	case step == 0:
	case step == lengths(s.o.interval)[seg.level]:
		window, groups = "start", append(groups, "start") // in order of the key
	default:
		window, groups = fmt.Sprintf("start - start %% %d", step), append(groups, "slot")
	}
	if bySubject {
		who, groups = "subject", append(groups, "subject")
	}
	by := ""
	if len(groups) > 0 {
		by = "GROUP BY " + strings.Join(groups, ", ")
	}
	only := ""
	args := []any{seg.from, seg.to}
	if ids != "" {
		only, args = "AND subject IN (SELECT value FROM json_each(?))", append(args, ids)
	}
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf(`SELECT %s AS slot, %s AS who, total(gpu_us), total(kernels), total(evictions), total(suspended_us),
		total(memory_kib_s), total(energy_mj), total(unaccounted_us), count(energy_mj) FROM %s WHERE start >= ? AND start < ? %s %s`, window, who, tables[seg.level], only, by), args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p part
		var id, energies int64
		var f [7]float64
		if err := rows.Scan(&p.start, &id, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &energies); err != nil {
			return nil, err
		}
		p.sums = Sums{
			GPUMicros: rounded(f[0]), Kernels: rounded(f[1]), Evictions: rounded(f[2]), SuspendedMicros: rounded(f[3]),
			MemoryKiBSeconds: rounded(f[4]), EnergyMillijoules: rounded(f[5]), UnaccountedMicros: rounded(f[6]), EnergyKnown: energies > 0,
		}
		if p.sums.zero() && !bySubject {
			continue // the sum of no rows
		}
		p.subject = subjects[id]
		parts = append(parts, p)
	}
	return parts, rows.Err()
}

// rounded returns a sum that SQLite has made as a floating-point number, since sums of whole numbers
// fail when they overflow. It is exact up to 2⁵³: 285 years of a GPU's microseconds.
func rounded(f float64) int64 {
	if f >= 1<<63 {
		return 1<<63 - 1
	}
	return int64(f)
}

// matching returns the subjects that match, and their numbers as a JSON array; "" if all do.
func (s *store) matching(ctx context.Context, matches func(Subject) bool) (all map[int64]Subject, ids string, err error) {
	rows, err := s.read.QueryContext(ctx, "SELECT id, vm, domain, uuid, owner, project, gpu FROM subjects")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = make(map[int64]Subject)
	list := []int64{}
	others := false
	for rows.Next() {
		var id int64
		var x Subject
		if err := rows.Scan(&id, &x.VM, &x.Domain, &x.DomainUUID, &x.Owner, &x.Project, &x.GPU); err != nil {
			return nil, "", err
		}
		if !matches(x) {
			others = true
			continue
		}
		all[id] = x
		list = append(list, id)
	}
	if err := rows.Err(); err != nil || !others {
		return all, "", err
	}
	b, err := json.Marshal(list)
	return all, string(b), err
}
