// Package sqltool is the tool that a model gets to work on one database with: it decides what SQL runs, and nothing else.
//
//	tool, err := sqltool.New(db, sqltool.Limits{})
//	// tool.Name, tool.Description, tool.Schema: for the model's list of tools
//	out, err := tool.Call(ctx, input) // input as the model wrote it: {"sql": "SELECT ..."}
//	// out: for the model, whatever err is. err: for the program.
//
// What it promises:
//
//   - The schema has one property, sql. Which database that is stands in a closure: no input names another one, and no output names it, a path, a URL, a key or an error of Go.
//   - A call ends. Rows, bytes, the size of a cell, time, steps of SQLite's machine, its memory, and the growth of the database are bounded by [Limits]; a statement that runs away
//     is interrupted, and its changes are undone.
//   - What reaches beyond the database's tables is refused by SQLite's own authorizer and limits, never by reading the text: ATTACH, DETACH, VACUUM (it is an ATTACH), every pragma but those that describe the schema, functions and virtual tables of the
//     program (Limits.Functions lets some in), the tables _tonbo_* (neither written nor read), temporary triggers; triggers too unless Limits.Triggers.
//   - A call leaves nothing behind in the connection: no open transaction, no temporary table, no setting. The tool has a connection of its own, so its authorizer and limits are no other connection's.
//   - One statement a call. With Limits.Multi several, and then BEGIN and SAVEPOINT too; a transaction that is open at the end of its call is rolled back, and the model is told.
//   - With Limits.SyncEach a call that wrote is acknowledged ([tonbo.DB.Synced]) before it returns nil.
//
// [DescribeSchema], [Checkpoint], [Rewind] and [Diff] are further tools of the same shape, as narrow.
//
// Destructive statements on the database's own tables are allowed: give the tool a scratch fork ([tonbo.Scratch]), or Limits.ReadOnly.
//
// What it does not know: what the statements are for, which rows a model may see, and whether what it stored is good. What the model puts into the schema (a view, a default, a check, a generated column) is evaluated later in the
// program's own connections, without these limits; [tonbo.Diff] shows it before it is promoted.
//
// # The JSON form of a result
//
//	{"columns": ["id", "name", "raw"], "rows": [[1, "a", {"blob": "00ff"}]], "truncated": true, "changes": 3, "note": "..."}
//
// columns and rows are there when the statement returns rows; changes (rows inserted, updated and deleted by the statement itself) when it is one that can write; truncated when there were more rows. A value keeps its type:
//
//	NULL      null
//	INTEGER   a number; beyond ±(2^53-1), where JSON readers round, {"integer": "9223372036854775807"}
//	REAL      a number that has a point or an exponent (1.0, 2.5e-10); {"real": "Infinity"}, {"real": "-Infinity"}. SQLite stores NaN as NULL.
//	TEXT      a string; {"text_hex": "ff"} when it is not UTF-8; {"text": "the beginn", "bytes": 71234} when it is longer than Limits.CellBytes
//	BLOB      {"blob": "00ff"} in hexadecimal, and "bytes", its whole length, when it was cut
//
// With Limits.Multi: {"results": [one for each statement that was run]}. An error, beside the results of earlier statements if there are any:
//
//	{"error": {"message": "no such column: nmae", "near": "nmae FROM users", "line": 1, "column": 8, "statement": 2, "hint": "did you mean users.name?"}}
//
// What [Diff] tells; copies, before and after, of a row that has no primary key:
//
//	{"schema": [{"op": "create", "type": "table", "name": "notes", "sql": "CREATE TABLE notes(body)"}],
//	 "tables": [{"table": "orders", "inserted": 0, "updated": 1, "deleted": 2, "columns": ["id", "status"],
//	   "rows": [{"op": "update", "before": [1, "pending"], "after": [1, "paid"]}, {"op": "delete", "before": [2, "paid"], "copies": [2, 0]}]}],
//	 "truncated": true}
package sqltool
