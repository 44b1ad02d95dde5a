// Package changeset finds, shows and applies the difference between two SQLite databases: schema and rows.
//
// [Compare] reads both through one connection and returns a [Set] that turns the first into the second. [Set.Apply] makes it so in one transaction, on the first one or on what
// has become of it since: each row is compared with what it was, and a row that somebody else has changed is a [ConflictError]. [Set.WriteSQL] writes a script that
// does so with any SQLite; [Set.WriteText] tells a person.
//
// Rows are matched by the declared primary key. Those of tables without one, and those with a NULL in their key, are compared as multisets: how many copies there are of each.
// Values are the same when type and bits are: 1 is not 1.0, 0.0 is not -0.0, a text is not a blob, and 'a' is not 'A' whatever the collation. Left out are generated
// columns, implicit rowids, the statistics of ANALYZE, and what a virtual table keeps beside its rows.
//
// It knows SQLite connections. It knows no remote and no log: package tonbo brings them together in its Diff and Promote.
package changeset
