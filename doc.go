// Package tonbo gives a program a SQLite database that outlives its machine.
//
// A database lives under a name in a remote: an S3-compatible bucket, or a directory. [Open] takes it over and brings a local copy up to
// date; it is used through database/sql at the speed of plain SQLite; [DB.Synced] is the acknowledgement: when it returns nil, the remote holds
// every commit that returned before the call, and this process was still the owner. A process elsewhere that opens the
// database gets all of it, and from then on the commits of the former owner are refused with [ErrFenced].
//
// Nothing acknowledged is ever lost; nothing else is dropped silently either: commits that can no longer be shipped are set aside as a plain SQLite file,
// which the error names. See docs/ for the promises, the log protocol and the formats.
package tonbo
