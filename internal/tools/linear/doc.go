// Package linear checks that what owners of one database do is linearizable: acknowledged writes and reads, while the database is taken over again and again and requests are lost. It is a module of its own
// because of the checker (github.com/anishathalye/porcupine), which the library does not depend on.
package linear
