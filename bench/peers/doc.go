// Command bench measures tonbo side by side with what one would use instead, on this machine, in one run, and writes what it measured as a table (text), as
// JSON, and as plots (SVG):
//
//	go run ./bench                        # every workload, 1 GB at most: about half an hour on 2 cores
//	go run ./bench -list                  # what there is
//	go run ./bench -run 'hydrate|cold'    # some
//	go run ./bench -small -n 1            # all of it in seconds, with sizes that say nothing
//
// It is a module of its own, so that the peers (litestream, modernc.org/sqlite, and with cgo mattn/go-sqlite3) are no dependencies of the library.
//
// The remote is a real S3 server (versitygw) over a temporary directory, on the loopback interface. In front of it stands a proxy, a process of its own, that delays
// each request, bounds the bytes a second of all connections together, and takes down every request: its kind, its bytes, when it began and ended. So the
// figures of requests, bytes and serial round trips are counted, whoever sends them, not told by who is measured.
//
// "Floor" is the least that the same bytes take here: a raw PUT, raw parallel GETs, the driver's own SQLite.
package main
