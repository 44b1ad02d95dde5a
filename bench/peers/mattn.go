//go:build mattn && cgo

package main

import (
	"database/sql"

	"github.com/mattn/go-sqlite3"
)

// Both mattn's driver and ours register the name sqlite3 unless the linker is told otherwise:
//
//	CGO_ENABLED=1 go -C bench/peers run -tags mattn -ldflags '-X github.com/mattn/go-sqlite3.driverName=' . -run local
func init() {
	sql.Register("mattn", &sqlite3.SQLiteDriver{})
	openMattn = func(file string) (*sql.DB, error) {
		return sql.Open("mattn", "file:"+file+"?_busy_timeout=60000&_journal_mode=WAL&_synchronous=NORMAL")
	}
}
