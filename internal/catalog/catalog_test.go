package catalog

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/mem"
)

var example = Record{
	Name: "run-1:a", ID: fence.ID{1, 2}.String(), Slot: 7, State: Ready, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), CreatedBy: "host:1", ExpiresAt: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC),
	Metadata: map[string]string{"a": "b"}, Protected: true, Frozen: true, Parent: &Point{"golden", fence.ID{3}.String(), 9}, IdempotencyKey: KeyHash("key"),
}

func TestKeysComeBack(t *testing.T) {
	name, slot, id, ok := ParseRecordKey(RecordKey("run-1:a", 7, fence.ID{1}))
	if !ok || name != "run-1:a" || slot != 7 || id != (fence.ID{1}) {
		t.Error(name, slot, id, ok)
	}
	for _, key := range []string{"", "names/", "names/a", "names/a/7." + id.String(), "names/a/b/" + strings.Repeat("0", 16) + "." + id.String(), "ended/a/0000000000000007." + id.String(), "names/a/0000000000000007." + strings.ToUpper(fence.ID{0xab}.String())} {
		if _, _, _, ok := ParseRecordKey(key); ok {
			t.Errorf("%q is taken for a record's key", key)
		}
	}
}

// fieldNames are the names of a record's fields: one that is missing there would be kept twice.
func TestEveryFieldIsKnown(t *testing.T) {
	names := map[string]bool{}
	for _, f := range fieldNames {
		names[f] = true
	}
	typ := reflect.TypeFor[Record]()
	n := 0
	for i := range typ.NumField() {
		tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if tag == "" {
			continue
		}
		if n++; !names[tag] {
			t.Errorf("%s is not in fieldNames", tag)
		}
	}
	if n != len(names) {
		t.Errorf("%d fields, %d names", n, len(names))
	}
}

func TestRecordComesBack(t *testing.T) {
	ctx := t.Context()
	s := mem.New("test")
	want := example
	if err := Put(ctx, s, &want); err != nil {
		t.Fatal(err)
	}
	again := example
	again.State = Making
	if err := Put(ctx, s, &again); err != nil { // there is one of the same attempt
		t.Fatal(err)
	}
	got, err := Read(ctx, s, want.Key())
	if err != nil {
		t.Fatal(err)
	}
	got.etag, got.rest = "", nil
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	found, err := Find(ctx, s, want.Name, fence.ID{1, 2})
	if err != nil || found.Slot != 7 {
		t.Errorf("found %+v, %v", found, err)
	}
	_, err = Find(ctx, s, want.Name, fence.ID{9})
	if !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	r := example
	r.Format = format
	b, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	key := r.Key()
	f.Add(b)
	f.Add([]byte(strings.Replace(string(b), "{", `{"later":[1,{"x":null}],`, 1)))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decodeRecord("mem://", key, remote.Object{Body: body})
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatalf("unnamed: %v", err)
			}
			return
		}
		once, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		r, err = decodeRecord("mem://", key, remote.Object{Body: once})
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice, err := r.encode(); err != nil || string(once) != string(twice) {
			t.Errorf("%s became %s, %v", once, twice, err)
		}
	})
}
