// Package blockcache keeps blocks of immutable objects in a directory of this machine, which any number of processes share: what one has fetched the others need not.
//
// It promises that what it returns has the checksum that the caller asked for, whatever happened to the files: one that was torn, altered or half written by a process
// that was killed is a miss, removed and fetched again. Of several processes, or goroutines, that want the same block at the same time one fetches it, and the others
// wait for that, within a bound. The directory stays within a bound, too: what was used least recently is removed, now and then. When files cannot be written (a full
// disk) it gives up for a while and lets everything through.
//
// Files are named by a hash of store, object, block and checksum, so that two stores, or two lives of one, cannot mix. No file is ever changed after it has its name,
// and nothing is fsynced: after a power cut the checksums tell.
//
// It knows no format and no store: blocks come from a function that fetches them.
package blockcache
