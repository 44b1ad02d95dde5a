package tonbo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/tonbo-go/tonbo"
)

// bushy makes a database of 8 MB whose b-trees have almost a thousand interior pages, of 512 bytes, which do not compress. It has no base.
func (a *account) bushy(name string) {
	a.t.Helper()
	c := a.client()
	if _, err := c.Create(context.Background(), name, tonbo.CreateOptions{PageSize: 512}); err != nil {
		a.t.Fatal(err)
	}
	db := open(a.t, name, a.machine().Unsettled())
	exec(a.t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, k BLOB UNIQUE, v BLOB)")
	exec(a.t, db, "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n<12000) INSERT INTO t(k,v) SELECT randomblob(90), randomblob(300) FROM s")
	synced(a.t, db)
	closeDB(a.t, db)
}

const bushyRows = "SELECT count(*)||' '||sum(length(v))||' '||max(hex(k))||' '||min(hex(v)) FROM t"

// TestUpperObjectIsWholeOrNotMade: what is not here when a base is made is not left out of it for the many bases that would go on with it, nor is it read one by one to find out that the object is not paid for.
func TestUpperObjectIsWholeOrNotMade(t *testing.T) {
	ifNotRacing(t)
	a := newAccount(t)
	a.bushy("run")
	base := func(db *tonbo.DB, step string) (gets int64) {
		t.Helper()
		exec(t, db, step)
		synced(t, db)
		before := db.Status().Requests.Get
		if err := db.Compact(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		return db.Status().Requests.Get - before
	}
	// (1) Of a machine that has none of the pages.
	db := open(t, "run", a.lazyMachine().Unsettled().Packing(0))
	base(db, "UPDATE t SET v=zeroblob(300) WHERE id=1")
	if u := db.Base().UpperObject; u != nil || db.Base().Upper == nil {
		t.Errorf("a base made far away from most pages names %+v", u)
	}
	closeDB(t, db)
	// (2) With the ones that a manifest has, and then with most others.
	db = open(t, "run", a.lazyMachine().Unsettled().Packing(0))
	for _, last := range []int{0, 10_900} {
		for id := last; id > 0; id -= 60 { // downwards, so that nothing is read ahead
			rows(t, db, fmt.Sprint("SELECT v FROM t WHERE id=", id))
		}
		n := base(db, "UPDATE t SET v=randomblob(300) WHERE id=1")
		if n > 25 {
			t.Errorf("with the rows up to %d, %d GETs for a base", last, n)
		}
		if u := db.Base().UpperObject; u != nil {
			t.Errorf("with the rows up to %d, the base names %+v", last, u)
		}
	}
	// (3) With all of them, but for little; and then for as much as pays for it.
	hydrated(t, db)
	base(db, "UPDATE t SET v=randomblob(300) WHERE id=1")
	if u := db.Base().UpperObject; u != nil {
		t.Errorf("a small base names %+v", u)
	}
	base(db, "UPDATE t SET v=randomblob(300)")
	object := *objectOf(t, db)
	if object.Pages < 800 || object.Slot != db.Base().Slot {
		t.Errorf("the base names %+v", object)
	}
	closeDB(t, db)
	// (4) A machine that has none of the pages goes on with it, whatever its base is like.
	db = open(t, "run", a.lazyMachine().Unsettled().Packing(0))
	for n := range 9 {
		base(db, "UPDATE t SET v=randomblob(300) WHERE id<5000")
		if u := objectOf(t, db); u.Key != object.Key {
			t.Errorf("base %d names %+v, the one before %+v", n, u, object)
		}
		if len(db.Base().Levels) == 1 { // its bottom is new
			break
		}
	}
	if n := len(db.Base().Levels); n > 1 {
		t.Errorf("%d levels: no new bottom was tried", n)
	}
	want := rows(t, db, bushyRows)
	closeDB(t, db)
	soundly(t, a, "run")
	if got := rows(t, open(t, "run", a.lazyMachine()), bushyRows); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestReaderWithAllPagesKeepsNoUpperObject: before that, its pages are taken from memory.
func TestReaderWithAllPagesKeepsNoUpperObject(t *testing.T) {
	ifNotRacing(t)
	a := newAccount(t)
	a.bushy("run")
	db := open(t, "run", a.fullMachine().Unsettled().Packing(0))
	exec(t, db, "UPDATE t SET v=zeroblob(300) WHERE id=1")
	compacted(t, db)
	want, size := rows(t, db, bushyRows), objectOf(t, db).Size
	closeDB(t, db)
	ro := a.reading("run", func(o *tonbo.Options) { o.Hydration = tonbo.HydrateNone })
	if n := int64(ro.UpperInMemory()); n < size/2 {
		t.Errorf("%d bytes in memory, of an object of %d", n, size)
	}
	hydrated(t, ro)
	if n := ro.UpperInMemory(); n != 0 {
		t.Errorf("%d bytes are still in memory", n)
	}
	if got := rows(t, ro, bushyRows); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRootsOfNewTablesAreUpperPages: of a schema that has many pages, those that name the new tables are changed, and page 1, which names none.
func TestRootsOfNewTablesAreUpperPages(t *testing.T) {
	a := newAccount(t)
	a.create("run")
	db := open(t, "run", a.machine().Unsettled().Packing(0).UpperObjects())
	for i := range 150 {
		exec(t, db, fmt.Sprintf("CREATE TABLE t%d(id INTEGER PRIMARY KEY, some_text TEXT, some_more TEXT, and_a_number INT)", i))
	}
	compacted(t, db)
	object := objectOf(t, db).Key
	roots := []uint32{}
	for i := range 3 {
		exec(t, db, fmt.Sprintf("CREATE TABLE more%d(v); INSERT INTO more%d VALUES('x')", i, i))
		compacted(t, db)
		var root uint32
		if err := db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name=?", fmt.Sprint("more", i)).Scan(&root); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
		m := db.Base()
		if u := objectOf(t, db); u.Key != object {
			t.Fatalf("base %d has another upper object", i)
		}
		has := map[uint32]bool{}
		if err := m.Upper.Each(m.PageSize, m.PageCount, func(p uint32, _ []byte) error { has[p] = true; return nil }); err != nil {
			t.Fatal(err)
		}
		for i, root := range roots {
			if !has[root] {
				t.Errorf("page %d, of new table %d of %d, is not among %d upper pages", root, i, len(roots), len(has))
			}
		}
	}
}

// TestUpperPagesOfADamagedDatabaseHaveAnEnd: an interior page that is below itself is there once.
func TestUpperPagesOfADamagedDatabaseHaveAnEnd(t *testing.T) {
	file, err := os.ReadFile(plainOf(t, 3000))
	if err != nil {
		t.Fatal(err)
	}
	const size = 4096
	count := uint32(len(file) / size)
	before, err := tonbo.UpperPages(t.Context(), bytes.NewReader(file), size, count)
	if err != nil || len(before) < 4 {
		t.Fatalf("%v %v", before, err)
	}
	interior := 0
	for _, p := range before[1:] { // https://sqlite.org/fileformat2.html#b_tree_pages
		page := file[int64(p-1)*size : int64(p)*size]
		if page[0] != 2 && page[0] != 5 {
			continue
		}
		interior++
		cell := binary.BigEndian.Uint16(page[12:])
		binary.BigEndian.PutUint32(page[cell:], p)      // the first child
		binary.BigEndian.PutUint32(page[8:], before[1]) // and the last
	}
	if interior < 2 {
		t.Fatalf("%d interior pages among %v", interior, before)
	}
	after, err := tonbo.UpperPages(t.Context(), bytes.NewReader(file), size, count)
	seen := map[uint32]bool{}
	for _, p := range after {
		if seen[p] {
			t.Errorf("page %d is there twice", p)
		}
		seen[p] = true
	}
	if err != nil || len(after) < 2 {
		t.Errorf("%v %v", after, err)
	}
}
