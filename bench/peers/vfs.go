//go:build vfs && mattn && cgo

package main

import (
	"database/sql"
	"fmt"
	"log/slog"

	"github.com/benbjohnson/litestream"
	"github.com/psanford/sqlite3vfs"
)

// litestream's VFS reads pages from the replica when they are needed. It needs cgo, and its tag:
//
//	CGO_ENABLED=1 go -C bench/peers run -tags 'vfs mattn' -ldflags '-X github.com/mattn/go-sqlite3.driverName=' . -run coldstart
func init() {
	openVFS = func(c litestream.ReplicaClient, name string) (*sql.DB, error) {
		if err := sqlite3vfs.RegisterVFS(name, litestream.NewVFS(c, slog.New(slog.DiscardHandler))); err != nil {
			return nil, err
		}
		return sql.Open("mattn", fmt.Sprintf("file:/%s.db?vfs=%s", name, name))
	}
}
