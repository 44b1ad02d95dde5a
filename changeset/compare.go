package changeset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/internal/btree"
)

// Options of Compare. The zero value has the defaults.
type Options struct {
	MaxRows  int   // rows in a Set; default 100,000
	MaxBytes int64 // of their values, in memory; default 256 MiB
	// Keep, if it is not zero, is how many rows are kept; the others are counted (TableChange.Omitted), and MaxRows does not matter. Such a set is there to be looked at.
	Keep int

	// Pages, if it is not nil, saves reading what is the same on both sides.
	Pages *Pages

	used   func(string) // for tests: is told what came of Pages
	broken string       // for tests: a rule that is left out
}

// Compare finds what turns a into b, two databases of one connection: "main", or what they are attached as. It reads both in one read transaction that it begins and ends, so each is
// seen as of one commit, and writes nothing. Memory is bounded by the options: rows that are the same are not kept.
//
// Errors, for errors.Is: [ErrTooLarge]; [ErrUnsupported] when a virtual table differs whose rows cannot be read and written back: one without content, or of an
// unknown module.
func Compare(ctx context.Context, c *sqlite3.Conn, a, b string, o Options) (*Set, error) {
	if o.MaxRows <= 0 {
		o.MaxRows = 100_000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	old := c.SetInterrupt(ctx)
	defer c.SetInterrupt(old)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.Exec("BEGIN"); err != nil {
		return nil, err
	}
	d := &comparison{c: c, o: o, set: &Set{}, gone: map[string]bool{}, fresh: map[string]bool{}, altered: map[string]*added{}}
	err := d.run(ctx, a, b)
	if rerr := c.Exec("ROLLBACK"); err == nil {
		err = rerr
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	return d.set, nil
}

// comparison is a Compare under way.
type comparison struct {
	c     *sqlite3.Conn
	o     Options
	set   *Set
	a, b  *schema
	bytes int64
	rows  int

	may         map[string]*btree.Rows // by folded name of an ordinary table: rows that may differ; nil: all may
	gone, fresh map[string]bool        // folded names of tables and views that are dropped and created
	altered     map[string]*added      // by folded name
}

func (d *comparison) run(ctx context.Context, a, b string) (err error) {
	// (1) Both schemas. Reading them takes both snapshots.
	if d.a, err = readSchema(d.c, a); err != nil {
		return err
	}
	if d.b, err = readSchema(d.c, b); err != nil {
		return err
	}
	if err := query(d.c, "PRAGMA "+ident(a)+".encoding", nil, func(st *sqlite3.Stmt) error { d.set.Encoding = st.ColumnText(0); return nil }); err != nil {
		return err
	}
	// (2) Which tables and views go, come, and get columns.
	for _, o := range d.a.objects {
		if o.typ != "table" && o.typ != "view" {
			continue
		}
		switch now, ok := d.b.find(o.typ, o.name); {
		case !ok:
			d.gone[fold(o.name)] = true
		case now.sql != o.sql:
			if o.typ == "table" && d.a.virtual[fold(o.name)] == nil && d.b.virtual[fold(o.name)] == nil {
				if d.altered[fold(o.name)] = addedColumns(o.name, o.sql, now.sql); d.altered[fold(o.name)] != nil {
					continue
				}
			}
			d.gone[fold(o.name)], d.fresh[fold(o.name)] = true, true
		}
	}
	for _, o := range d.b.objects {
		if o.typ == "table" || o.typ == "view" {
			if _, ok := d.a.find(o.typ, o.name); !ok {
				d.fresh[fold(o.name)] = true
			}
		}
	}
	d.objects()
	// (3) Rows.
	if err := d.prefilter(ctx); err != nil {
		return err
	}
	if err := d.tables(); err != nil {
		return err
	}
	if err := d.sequences(); err != nil {
		return err
	}
	if err := d.rebuilds(); err != nil {
		return err
	}
	for _, name := range pragmas {
		if err := d.pragma(name); err != nil {
			return err
		}
	}
	d.triggers()
	return nil
}

// objects lists the schema's changes.
func (d *comparison) objects() {
	changed := func(o object, other *schema, over map[string]bool) bool {
		if o.typ == "table" || o.typ == "view" {
			return over[fold(o.name)]
		}
		now, ok := other.find(o.typ, o.name)
		return !ok || now.sql != o.sql || now.table != o.table || d.gone[fold(o.table)] || d.fresh[fold(o.table)]
	}
	add := func(op Op, o object, before, after string, statements ...string) {
		sc := SchemaChange{Op: op, Type: o.typ, Name: o.name, Before: before, After: after, Statements: statements}
		if o.table != o.name {
			sc.Table = o.table
		}
		d.set.Schema = append(d.set.Schema, sc)
	}
	for _, typ := range []string{"trigger", "view", "index", "table"} {
		for _, o := range d.a.objects {
			if o.typ == typ && changed(o, d.b, d.gone) {
				add(Drop, o, o.sql, "", dropStatement(typ, o.name))
			}
		}
	}
	for _, o := range d.a.objects {
		if o.typ == "table" && d.altered[fold(o.name)] != nil {
			now, _ := d.b.find(o.typ, o.name)
			add(Alter, o, o.sql, now.sql, d.altered[fold(o.name)].statements...)
		}
	}
	for _, typ := range []string{"table", "index", "view", "trigger"} {
		for _, o := range d.b.objects {
			if o.typ == typ && changed(o, d.a, d.fresh) {
				add(Create, o, "", o.sql, o.sql)
			}
		}
	}
}

// tables compares the rows of every table.
func (d *comparison) tables() error {
	for _, o := range d.a.objects {
		if o.typ == "table" && d.gone[fold(o.name)] {
			if err := d.oneSide(d.a, o, Delete); err != nil {
				return fmt.Errorf("table %s: %w", o.name, err)
			}
		}
	}
	for _, o := range d.b.objects {
		if o.typ != "table" {
			continue
		}
		do := d.bothSides
		if d.fresh[fold(o.name)] {
			do = func(o object) error { return d.oneSide(d.b, o, Insert) }
		}
		if err := do(o); err != nil {
			return fmt.Errorf("table %s: %w", o.name, err)
		}
	}
	return nil
}

// list takes a table's rows into the set.
func (d *comparison) list(tc *TableChange) {
	if len(tc.Rows) > 0 || tc.Omitted != nil {
		d.set.Tables = append(d.set.Tables, *tc)
	}
}

// add takes one row that differs.
func (d *comparison) add(tc *TableChange, r RowChange) error {
	if d.o.Keep > 0 && d.rows >= d.o.Keep {
		if tc.Omitted == nil {
			tc.Omitted = &Omitted{}
		}
		tc.Omitted.add(&r)
		return nil
	}
	d.rows++
	d.bytes += 64 + size(r.Before) + size(r.After)
	if d.o.Keep <= 0 && d.rows > d.o.MaxRows {
		return fmt.Errorf("%w: more than %d rows differ; raise MaxRows", ErrTooLarge, d.o.MaxRows)
	}
	if d.bytes > d.o.MaxBytes {
		return fmt.Errorf("%w: the rows that differ take more than %d bytes; raise MaxBytes", ErrTooLarge, d.o.MaxBytes)
	}
	tc.Rows = append(tc.Rows, r)
	return nil
}

// shapeOf describes the rows of a table, nil: it has none of its own.
func (d *comparison) shapeOf(s *schema, o object) (*shape, error) {
	v := s.virtual[fold(o.name)]
	if v == nil {
		return readShape(d.c, s.db, o.name)
	}
	switch v.kind() {
	case stored:
		return v.shapeIn(d.c, s.db)
	case opaque:
		return nil, v.unsupported("its rows cannot be read and written back")
	}
	return nil, nil
}

// oneSide lists all rows of a table that is on one side alone.
func (d *comparison) oneSide(s *schema, o object, op Op) error {
	t, err := d.shapeOf(s, o)
	if err != nil || t == nil {
		return err
	}
	tc := t.change()
	tc.Dropped, tc.Created = op == Delete, op == Insert
	row := func(values []any, copies int64) error {
		r := RowChange{Op: op, After: values, CopiesAfter: copies}
		if op == Delete {
			r = RowChange{Op: op, Before: values, CopiesBefore: copies}
		}
		return d.add(tc, r)
	}
	where := ""
	if t.nullKey {
		where = " WHERE NOT " + t.nulls("x")
	}
	if t.key != nil {
		if err := query(d.c, "SELECT "+t.list("x")+" FROM "+t.from()+" x"+where, nil, func(st *sqlite3.Stmt) error {
			return row(columns(st, 0, len(t.columns)), 0)
		}); err != nil {
			return err
		}
	}
	if t.key == nil || t.nullKey {
		if err := d.multiset(t, nil, func(values []any, n, _ int64) error { return row(values, n) }); err != nil {
			return err
		}
	}
	if v := s.virtual[fold(o.name)]; v != nil && v.module == "fts5" && op == Insert {
		if err := d.settings(nil, v); err != nil {
			return err
		}
	}
	d.list(tc)
	return nil
}

// bothSides compares the rows of a table that is on both.
func (d *comparison) bothSides(o object) error {
	va, vb := d.a.virtual[fold(o.name)], d.b.virtual[fold(o.name)]
	if vb != nil {
		if vb.kind() == derived || vb.kind() == nowhere {
			return nil
		}
		if vb.module != "fts5" || vb.kind() == opaque { // to look at what lies beneath is cheaper, and works with any
			differ, err := d.shadowsDiffer(va, vb)
			if err != nil || !differ {
				return err
			}
		}
	}
	y, err := d.shapeOf(d.b, o)
	if err != nil {
		return err
	}
	x, err := d.shapeOf(d.a, o)
	if err != nil {
		return err
	}
	if alter := d.altered[fold(o.name)]; alter != nil {
		x = x.widened(y, alter, d.set.Encoding)
	}
	if !slices.Equal(x.columns, y.columns) {
		return fmt.Errorf("its columns differ although its definition does not: %q and %q", x.columns, y.columns)
	}
	tc := y.change()
	if y.key != nil {
		if err := d.keyed(tc, x, y); err != nil {
			return err
		}
	}
	if y.key == nil || y.nullKey {
		if err := d.unkeyed(tc, x, y); err != nil {
			return err
		}
	}
	if vb != nil && vb.module == "fts5" {
		if err := d.settings(va, vb); err != nil {
			return err
		}
	}
	d.list(tc)
	return nil
}

// widened is a's table with the columns that b's has gained: its rows have their defaults in them.
func (x *shape) widened(y *shape, alter *added, encoding string) *shape {
	w := *y
	w.db, w.source = x.db, x.source
	w.exprs, w.fixed = slices.Clone(y.exprs), make([]bool, len(y.columns))
	for i, n := range y.columns {
		if v, ok := alter.defaults[fold(n)]; ok {
			w.exprs[i], w.fixed[i] = literal(encoding, v), true
		}
	}
	return &w
}

// shadowsDiffer tells whether there is any difference in what a virtual table keeps.
func (d *comparison) shadowsDiffer(va, vb *virtual) (bool, error) {
	if va == nil || !slices.Equal(va.shadows, vb.shadows) {
		return true, nil
	}
	probe := &comparison{c: d.c, o: Options{MaxRows: 1, MaxBytes: d.o.MaxBytes}, set: &Set{Encoding: d.set.Encoding}, a: d.a, b: d.b, may: d.may}
	for _, n := range vb.shadows {
		x, err := readShape(d.c, d.a.db, n)
		if err != nil {
			return false, err
		}
		y, err := readShape(d.c, d.b.db, n)
		if err != nil {
			return false, err
		}
		tc := y.change()
		if y.key != nil {
			err = probe.keyed(tc, x, y)
		} else {
			err = probe.unkeyed(tc, x, y)
		}
		if errors.Is(err, ErrTooLarge) || err == nil && len(tc.Rows) > 0 {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// settings compares those of a full-text table. https://sqlite.org/fts5.html#configuration_options_config_table_
func (d *comparison) settings(va, vb *virtual) error {
	read := func(s *schema, v *virtual) (map[string]any, error) {
		m := map[string]any{}
		if v == nil {
			return m, nil
		}
		return m, query(d.c, "SELECT k, v FROM "+ident(s.db)+"."+ident(v.name+"_config")+" WHERE k <> 'version'", nil, func(st *sqlite3.Stmt) error {
			m[st.ColumnText(0)] = column(st, 1)
			return nil
		})
	}
	before, err := read(d.a, va)
	if err != nil {
		return err
	}
	after, err := read(d.b, vb)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, m := range []map[string]any{before, after} {
		for k := range m {
			names[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		var v [2]any
		for i, m := range []map[string]any{before, after} {
			if set, ok := m[k]; ok {
				v[i] = set
			} else {
				v[i] = settingDefaults[k]
			}
		}
		if same(v[0], v[1]) {
			continue
		}
		if _, ok := settingDefaults[k]; !ok {
			return vb.unsupported("its setting " + k + " is not known")
		}
		if v[1] == nil {
			return vb.unsupported("its setting " + k + " was removed")
		}
		sc := SchemaChange{Op: Setting, Type: "fts5", Name: k, Table: vb.name, After: literal(d.set.Encoding, v[1]),
			Statements: []string{settingStatement(vb.name, k, literal(d.set.Encoding, v[1]))}}
		if v[0] != nil {
			sc.Before = literal(d.set.Encoding, v[0])
		}
		d.set.Schema = append(d.set.Schema, sc)
	}
	return nil
}

// settingDefaults are all settings, as a full-text table has them that nobody set otherwise. https://sqlite.org/fts5.html#special_insert_commands
var settingDefaults = map[string]any{
	"automerge": int64(4), "crisismerge": int64(16), "deletemerge": int64(10), "hashsize": int64(1 << 20), "insttoken": int64(0), "pgsz": int64(4050), "rank": "bm25()", "secure-delete": int64(0), "usermerge": int64(4),
}

// rebuilds lists the full-text indexes whose table has changed.
func (d *comparison) rebuilds() error {
	changed := map[string]bool{}
	for _, t := range d.set.Tables {
		changed[fold(t.Name)] = true
	}
	for _, o := range d.b.objects {
		v := d.b.virtual[fold(o.name)]
		if v == nil || v.kind() != derived {
			continue
		}
		var va *virtual
		if !d.fresh[fold(o.name)] {
			va = d.a.virtual[fold(o.name)]
		}
		if err := d.settings(va, v); err != nil {
			return fmt.Errorf("table %s: %w", o.name, err)
		}
		is := d.b.isA[fold(v.content)]
		if is == "" { // there is nothing to build it from
			continue
		}
		if d.fresh[fold(o.name)] || changed[fold(v.content)] || d.fresh[fold(v.content)] || is != "table" && is != "virtual" && len(changed) > 0 { // a view: who knows of what
			d.set.Schema = append(d.set.Schema, SchemaChange{Op: Rebuild, Type: "table", Name: o.name,
				Statements: []string{rebuildStatement(o.name)}})
		}
	}
	return nil
}

// sequences compares what AUTOINCREMENT has counted to. https://sqlite.org/autoinc.html
func (d *comparison) sequences() error {
	read := func(s *schema, over map[string]bool) (map[string]any, error) {
		m := map[string]any{}
		if !s.seqs {
			return m, nil
		}
		return m, query(d.c, "SELECT name, seq FROM "+ident(s.db)+".sqlite_sequence", nil, func(st *sqlite3.Stmt) error {
			if name := st.ColumnText(0); m[name] == nil && !over[fold(name)] {
				m[name] = column(st, 1)
			}
			return nil
		})
	}
	before, err := read(d.a, d.gone) // they go with their tables
	if err != nil {
		return err
	}
	after, err := read(d.b, nil)
	if err != nil {
		return err
	}
	var names []string
	for n := range before {
		names = append(names, n)
	}
	for n := range after {
		if _, ok := before[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	tc := &TableChange{Name: sequenceTable, Columns: []string{"name", "seq"}, Key: []string{"name"}}
	for _, n := range names {
		was, is := before[n], after[n]
		r := RowChange{Op: Update, Before: []any{n, was}, After: []any{n, is}}
		_, had := before[n]
		_, has := after[n]
		switch {
		case !had:
			r.Op, r.Before = Insert, nil
		case !has:
			r.Op, r.After = Delete, nil
		case same(was, is):
			continue
		}
		if err := d.add(tc, r); err != nil {
			return err
		}
	}
	d.list(tc)
	return nil
}

const sequenceTable = "sqlite_sequence"

// pragma compares a number in the database's header.
func (d *comparison) pragma(name string) error {
	var v [2]string
	for i, s := range []*schema{d.a, d.b} {
		if err := query(d.c, "PRAGMA "+ident(s.db)+"."+name, nil, func(st *sqlite3.Stmt) error { v[i] = st.ColumnText(0); return nil }); err != nil {
			return err
		}
	}
	if v[0] != v[1] {
		d.set.Schema = append(d.set.Schema, SchemaChange{Op: Setting, Type: "pragma", Name: name, Before: v[0], After: v[1], Statements: []string{pragmaStatement(name, v[1])}})
	}
	return nil
}

// triggers lists those that would fire.
func (d *comparison) triggers() {
	listed := map[string]bool{}
	for _, sc := range d.set.Schema {
		if sc.Type == "trigger" {
			listed[sc.Name] = true
		}
	}
	for _, o := range d.b.objects {
		if o.typ == "trigger" && !listed[o.name] && slices.ContainsFunc(d.set.Tables, func(t TableChange) bool { return fold(t.Name) == fold(o.table) }) {
			d.set.Triggers = append(d.set.Triggers, Trigger{o.name, o.sql})
		}
	}
}
