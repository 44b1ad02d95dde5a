package changeset

import (
	"context"
	"errors"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/tonbo-go/tonbo/internal/btree"
)

// Pages lets Compare find the rows that differ by the pages that do, so that its cost follows the change and not the database.
type Pages struct {
	A, B PageReader
	// Differ lists the pages that may differ between what the two read transactions see, in any order, once both have begun. Any page that is not listed is the same on both sides. ok is
	// false when that is not known: all rows are compared then.
	Differ func(ctx context.Context) (pages []uint32, ok bool, err error)
	// Steady tells, after A and B have been read, whether they gave the pages that the transactions see. nil: they always do.
	Steady func(ctx context.Context) (bool, error)
}

// PageReader reads the pages of one side. Safe for concurrent use.
type PageReader interface {
	Count() uint32 // pages
	PageSize() int // bytes
	ReadPage(ctx context.Context, p uint32, buf []byte) error
}

// prefilter finds the rows that may differ, where pages can tell.
func (d *comparison) prefilter(ctx context.Context) error {
	p := d.o.Pages
	if p == nil {
		return nil
	}
	differ, ok, err := p.Differ(ctx)
	if err != nil {
		return err
	}
	if !ok {
		d.tell("not known")
		return nil
	}
	names, trees, err := d.trees()
	if err != nil {
		return err
	}
	rows, err := btree.Diff(ctx, p.A, p.B, differ, trees)
	if errors.Is(err, btree.ErrUnknown) {
		d.tell(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if p.Steady != nil {
		if ok, err := p.Steady(ctx); err != nil || !ok {
			d.tell("not steady")
			return err
		}
	}
	d.tell("used")
	d.may = map[string]*btree.Rows{}
	for i, n := range names {
		d.may[n] = &rows[i]
	}
	return nil
}

func (d *comparison) tell(what string) {
	if d.o.used != nil {
		d.o.used(what)
	}
}

// trees lists the b-trees of tables: of both sides, by folded name.
func (d *comparison) trees() (names []string, trees []btree.Tree, err error) {
	at := map[string]int{"sqlite_schema": 0}
	names, trees = []string{"sqlite_schema"}, []btree.Tree{{Root: [2]uint32{1, 1}, Table: true, Skip: true}}
	for i, s := range []*schema{d.a, d.b} {
		if err := query(d.c, "SELECT name, rootpage FROM "+ident(s.db)+".sqlite_schema WHERE type = 'table' AND rootpage > 0", nil, func(st *sqlite3.Stmt) error {
			n := fold(st.ColumnText(0))
			k, ok := at[n]
			if !ok {
				k = len(trees)
				at[n], names = k, append(names, n)
				trees = append(trees, btree.Tree{Table: true, Skip: d.gone[n] || d.fresh[n] || strings.HasPrefix(n, "sqlite_")})
			}
			trees[k].Root[i] = uint32(st.ColumnInt64(1))
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	// Those by key are told apart from the others, and how they are sorted.
	for i, s := range []*schema{d.a, d.b} {
		var without []string
		if err := query(d.c, "SELECT name FROM pragma_table_list WHERE schema = ? AND wr", []any{s.db}, func(st *sqlite3.Stmt) error {
			without = append(without, st.ColumnText(0))
			return nil
		}); err != nil {
			return nil, nil, err
		}
		for _, n := range without {
			t := &trees[at[fold(n)]]
			if i == 1 && !t.Skip && t.Table && t.Root[0] != 0 { // a table by rowid on one side alone
				t.Skip = true
			}
			t.Table = false
			if t.Skip {
				continue
			}
			sh, err := readShape(d.c, s.db, n)
			if err != nil {
				return nil, nil, err
			}
			t.Key = nil
			for j, coll := range sh.colls {
				text := collations[strings.ToUpper(coll)]
				if text == nil || d.set.Encoding != "UTF-8" {
					t.Key = nil
					break
				}
				t.Key = append(t.Key, btree.KeyPart{Desc: sh.desc[j], Compare: func(a, b any) int { return orderBy(text, a, b) }})
			}
		}
	}
	return names, trees, nil
}

// collations of SQLite, for UTF-8. https://sqlite.org/datatype3.html#collating_sequences
var collations = map[string]func(a, b string) int{
	"BINARY": strings.Compare,
	"RTRIM":  func(a, b string) int { return strings.Compare(strings.TrimRight(a, " "), strings.TrimRight(b, " ")) },
	"NOCASE": func(a, b string) int {
		for i := 0; i < len(a) && i < len(b); i++ {
			x, y := lower(a[i]), lower(b[i])
			if x != y {
				return int(x) - int(y)
			}
			if x == 0 { // SQLite looks no further than a NUL, but at how long they are
				break
			}
		}
		return len(a) - len(b)
	},
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// mayDiffer returns the rows of a table that may differ, nil: all may.
func (d *comparison) mayDiffer(t *shape) *btree.Rows {
	if r := d.may[fold(t.source)]; r != nil && !r.All {
		return r
	}
	return nil
}
