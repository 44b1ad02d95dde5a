// Package catalog keeps the small objects beside the logs: index records (record.go), the attempts of idempotency keys (once.go) and the marks of databases that have ended (ended.go).
//
// None of them decides whether a database exists: the log does. An index record is for listing, and for what an Open asks before it claims (expiry). It is made before the create that it
// announces (R11), swapped by If-Match alone, and removed when the incarnation has ended. docs/format.md has the objects' fields.
package catalog
