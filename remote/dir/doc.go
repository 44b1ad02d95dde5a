// Package dir is an object store in a local directory: the embedded default, for one machine or a shared file system.
//
// # Promises
//
// Create is exclusive between processes and durable when it returns: the object is written to a temporary file, flushed, and
// published under its name in one step that fails when the name is taken (a hard link; where there are none, a rename that does
// not replace). Then the folder is flushed, and so was every folder above it that may be new. A crash at any point leaves either
// nothing or the whole object, and perhaps a temporary file, which a later writer removes when it is an hour old. (A writer that
// sleeps for longer fails to publish: it harms nobody.)
//
// Swap and Delete exclude each other by a lock file, between processes too. Create, Get and List take no lock, so a process that
// is stopped anywhere holds up no claim and no append.
//
// A directory can be read while it changes, so List reads until two readings agree, entity tags included.
//
// # Layout
//
// A key is a path: one folder or file per segment. A segment is spelled so that it works on every file system, those that fold
// case included: lower-case letters, digits and "_ @ - ." stand for themselves, any other byte is "=" and two hexadecimal
// digits. So is the first byte of a segment that begins with a dot or that Windows reserves (con, nul, ...), and a dot at the
// end. A spelling of more than 200 bytes goes on in a folder whose name ends in "~"; its
// last part begins with "~". Names that are no such spelling are ignored
// (.DS_Store, lost+found). Folders are never removed.
//
//	db/My:run/log/ffff    ->    db/=4dy=3arun/log/ffff
//
// A file is a header of 32 bytes, then the body:
//
//	0   8   "tonbobj1"
//	8   16  random nonce; the entity tag is its hexadecimal form, so no two objects have the same
//	24  8   bytes of the body, little-endian
//
// The folder .tonbo holds the lock file and the temporary files.
//
// # Limits
//
// The file system must have hard links or an exclusive rename, honour fsync, and show every process the same: local ones do. On
// NFS, version 4 and a mount without attribute caching (noac) are needed; object stores mounted as file systems mostly fail at
// the publication, with [remote.ErrUnfit]. On Windows, the rename is written through; folders cannot be flushed there and rely
// on the NTFS journal's order.
package dir
