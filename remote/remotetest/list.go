package remotetest

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tonbo-go/tonbo/remote"
)

// all pages through a listing.
func (s *suite) all(prefix string, max int) []string {
	s.Helper()
	var keys []string
	after := ""
	for {
		page, more, err := s.Store.List(s.ctx, s.base+prefix, remote.ListOptions{After: after, Max: max})
		if err != nil {
			s.Fatalf("List: %v", err)
		}
		if max > 0 && len(page) > max {
			s.Fatalf("List with Max %d: %d keys", max, len(page))
		}
		if more && len(page) == 0 {
			s.Fatal("List: more after an empty page")
		}
		for _, k := range keysOf(page) {
			k = strings.TrimPrefix(k, s.base)
			if len(keys) > 0 && k <= keys[len(keys)-1] {
				s.Fatalf("List: %q after %q", k, keys[len(keys)-1])
			}
			keys = append(keys, k)
		}
		if !more {
			return keys
		}
		after = page[len(page)-1].Key
	}
}

func list(s *suite) {
	if got := s.all("", 0); len(got) != 0 {
		s.Fatalf("listing of nothing: %v", got)
	}
	var want []string
	for i := range s.keys {
		want = append(want, numbered(i))
	}
	order := rand.Perm(len(want))
	s.parallel(len(want), func(i int) error {
		k := want[order[i]]
		_, err := s.Store.Create(s.ctx, s.base+k, []byte(k))
		return err
	})
	for _, size := range []int{0, 1000, 333, 5000, s.keys, s.keys - 1} {
		if got := s.all("n/", size); !slices.Equal(got, want) {
			s.Fatalf("pages of %d: got %d keys, want %d", size, len(got), len(want))
		}
	}
	if got := s.all("n/0000", 3); !slices.Equal(got, want[:min(10, len(want))]) {
		s.Errorf("prefix in the middle of a segment: %v", got)
	}
	for _, c := range []struct {
		prefix, after string
		max           int
		want          []string
		more          bool
	}{
		{"n/", "", 1, want[:1], true},
		{"n/", "n/00003", 2, want[4:6], true},
		{"n/", "n/00003x", 2, want[4:6], true}, // After need not exist
		{"n/", "m", 1, want[:1], true},
		{"n/", "n/99999", 1, nil, false},
		{"n/", "o", 0, nil, false},
		{"n/" + "00002", "", 1, want[2:3], false},
		{"n/00002x", "", 1, nil, false},
		{"n", "n/" + "00008", 1, want[9:10], true},
		{"x/y/z", "", 1, nil, false},
	} {
		after := c.after
		if after != "" {
			after = s.base + after
		}
		page, more, err := s.Store.List(s.ctx, s.base+c.prefix, remote.ListOptions{After: after, Max: c.max})
		if err != nil {
			s.Fatal(err)
		}
		var got []string
		for _, i := range page {
			k := strings.TrimPrefix(i.Key, s.base)
			got = append(got, k)
			o := s.get(k, remote.GetOptions{})
			if o.ETag != i.ETag || o.Size != i.Size || i.Time.IsZero() {
				s.Errorf("List tells %+v, Get %+v", i, o.Info)
			}
		}
		if !slices.Equal(got, c.want) || more != c.more {
			s.Errorf("prefix %q after %q max %d: got %v more %v, want %v %v", c.prefix, c.after, c.max, got, more, c.want, c.more)
		}
	}
}

func neighbours(s *suite) {
	long := strings.Repeat("L", 255)
	all := []string{
		"run-1/log/a", "run-1/log/b", "run-1:a/log/a", "run-1@x/log/a", "run-1-a/log/a", "run-1.a/log/a", "run-1%/log/a", "run-10/log/a", "run-1", "RUN-1/log/a",
		"Run-1/log/a", "run-1/logs", "run-1/log.x/a", "run-1_/a", "run-1A/a", long + "/a", long, long[:254] + "/a", long[:254] + "-/a", long[:254] + "0/a", "zz",
	}
	// No key is a folder of another.
	all = slices.DeleteFunc(all, func(k string) bool {
		return slices.ContainsFunc(all, func(o string) bool { return strings.HasPrefix(o, k+"/") })
	})
	for _, k := range all {
		s.create(k, []byte(k))
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "run-1", "run-1/", "run-1/log", "run-1/log/", "run-1:", "run-1:a/", "run-1@", "run-1-", "run-1.", "run-1%", "run-10",
		"RUN", "R", "r", "run-1A", long[:100], long[:254], long, long + "/", "nothing", "run-1/nothing/"} {
		var want []string
		for _, k := range all {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		for _, size := range []int{0, 1, 2} {
			if got := s.all(prefix, size); !slices.Equal(got, want) {
				s.Errorf("prefix %.40q, pages of %d: got %q, want %q", prefix, size, got, want)
			}
		}
	}
}
