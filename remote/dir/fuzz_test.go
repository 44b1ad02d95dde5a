package dir_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tonbo-go/tonbo/remote"
	"github.com/tonbo-go/tonbo/remote/dir"
)

// FuzzFile: a file in an object's place is that object, as it was made, or an error: never a part of it, and never more than there is.
func FuzzFile(f *testing.F) {
	root := f.TempDir()
	s, err := dir.Open(root)
	if err != nil {
		f.Fatal(err)
	}
	ctx := context.Background()
	if _, err := s.Create(ctx, "a/b", []byte("what was put there")); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(root, "a", "b")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:20])
	f.Add(append(whole, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range []remote.GetOptions{{}, {Offset: 3, Length: 4}, {Offset: -5}, {Offset: 1 << 40}} {
			got, err := s.Get(ctx, "a/b", o)
			if err == nil && (int64(len(got.Body)) > got.Size || got.Size != int64(len(b))-32) {
				t.Errorf("%+v of %d bytes: %d of %d", o, len(b), len(got.Body), got.Size)
			}
		}
		if _, _, err := s.List(ctx, "", remote.ListOptions{}); err != nil {
			t.Logf("list: %v", err)
		}
	})
}
