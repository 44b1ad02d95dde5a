// Package vfs wraps SQLite's files and observes what commits: a SQLite VFS over the operating system's, for databases in WAL mode.
//
// It promises that [Database.Take] returns every page that has changed since the last shipped state, each once, in the newest
// committed version, as of one commit boundary; that a COMMIT refused by [Database.Refuse] or by [Options.BeforeCommit] fails
// and leaves no trace; and that local reads and writes run at the speed of the plain VFS.
//
// It knows no remote, no log and no cache directory. Pages leave through Take; pages that are not in the file yet come in through a
// [PageSource]. Statements that would change the database in a way that cannot be observed are refused when they are made.
//
// Beside that it shows SQLite a database that never changes and whose bytes a [SnapshotSource] has: a [Snapshot].
//
// The facts of SQLite that it relies on: https://sqlite.org/fileformat2.html#walformat and https://sqlite.org/wal.html.
package vfs
