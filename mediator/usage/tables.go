package usage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// The tables have the sums of subjects by intervals, hours, days and times of 28 days. meta has what keys there are
// below. Numbers of seconds are of Unix time.
const schema = `
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subjects (id INTEGER PRIMARY KEY, vm TEXT NOT NULL, domain TEXT NOT NULL, uuid TEXT NOT NULL,
	owner TEXT NOT NULL, project TEXT NOT NULL, gpu TEXT NOT NULL, UNIQUE (vm, domain, uuid, owner, project, gpu));
CREATE TABLE IF NOT EXISTS marks (life TEXT PRIMARY KEY, used_ns INTEGER NOT NULL, suspended_ns INTEGER NOT NULL,
	kernels INTEGER NOT NULL, evictions INTEGER NOT NULL, at INTEGER NOT NULL, unaccounted_ns INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
`

const sumsSchema = `
CREATE TABLE IF NOT EXISTS %s (start INTEGER NOT NULL, subject INTEGER NOT NULL, gpu_us INTEGER NOT NULL, kernels INTEGER NOT NULL,
	evictions INTEGER NOT NULL, suspended_us INTEGER NOT NULL, memory_kib_s INTEGER NOT NULL, energy_mj INTEGER,
	unaccounted_us INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (start, subject)) WITHOUT ROWID;
`

// upsert adds to a row. A sum that would overflow stays as large as it can be, and energy that was
// never told stays NULL.
const upsert = `
INSERT INTO %s VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (start, subject) DO UPDATE SET
	gpu_us = min(gpu_us, 4611686018427387903) + min(excluded.gpu_us, 4611686018427387903),
	kernels = min(kernels, 4611686018427387903) + min(excluded.kernels, 4611686018427387903),
	evictions = min(evictions, 4611686018427387903) + min(excluded.evictions, 4611686018427387903),
	suspended_us = min(suspended_us, 4611686018427387903) + min(excluded.suspended_us, 4611686018427387903),
	memory_kib_s = min(memory_kib_s, 4611686018427387903) + min(excluded.memory_kib_s, 4611686018427387903),
	unaccounted_us = min(unaccounted_us, 4611686018427387903) + min(excluded.unaccounted_us, 4611686018427387903),
	energy_mj = CASE WHEN energy_mj IS NULL THEN excluded.energy_mj WHEN excluded.energy_mj IS NULL THEN energy_mj
		ELSE min(energy_mj, 4611686018427387903) + min(excluded.energy_mj, 4611686018427387903) END
`

var tables = [levels]string{"intervals", "hours", "days", "eras"}

// The keys of table meta.
const (
	keyVersion = "version"
	keyNumber  = "number"  // of the newest batch
	keyBoot    = "boot"    // during which the database was made,
	keyMade    = "made"    // and when, in nanoseconds since that boot
	keyTrusted = "trusted" // the record's clock
)

var keyRemoved = [levels]string{"removed_intervals", "removed_hours", "removed_days", "removed_eras"}

// storeVersion is the version of the tables. Version 1 had no times that are unaccounted for.
const storeVersion = 2

// make makes the tables.
func (s *store) make(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec(schema); err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := tx.Exec(fmt.Sprintf(sumsSchema, t)); err != nil {
				return err
			}
		}
		return errors.Join(setMeta(tx, keyVersion, storeVersion), setMeta(tx, keyBoot, s.o.boot), setMeta(tx, keyMade, int64(s.o.now)))
	})
}

// upgrade adds to tables of version 1 what they lack.
func (s *store) upgrade(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		for _, t := range tables {
			if _, err := tx.Exec("ALTER TABLE " + t + " ADD COLUMN unaccounted_us INTEGER NOT NULL DEFAULT 0"); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("ALTER TABLE marks ADD COLUMN unaccounted_ns INTEGER NOT NULL DEFAULT 0"); err != nil {
			return err
		}
		return setMeta(tx, keyVersion, storeVersion)
	})
}

// meta returns a number of table meta, or 0.
func (s *store) meta(k string) (n int64, err error) {
	err = s.write.QueryRow("SELECT value FROM meta WHERE key = ?", k).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

func setMeta(tx *sql.Tx, k string, v any) error {
	_, err := tx.Exec("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", k, v)
	return err
}
