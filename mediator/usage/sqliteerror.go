package usage

import (
	"errors"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// code returns SQLite's primary result code of an error, or 0.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// isCorrupt reports whether an error says that the file is no database, or a damaged one.
func isCorrupt(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB || c == sqlite3.SQLITE_FORMAT
}

// isFull reports whether an error says that the disk is full, or the database as large as it may be.
func isFull(err error) bool { return code(err) == sqlite3.SQLITE_FULL }

// isNoTable reports whether an error says that there is no table of that name, as in a new database.
func isNoTable(err error) bool { return code(err) == sqlite3.SQLITE_ERROR }

// isReadOnly reports whether an error says that the file can't be written.
func isReadOnly(err error) bool {
	return code(err) == sqlite3.SQLITE_READONLY || errors.Is(err, unix.EROFS)
}
