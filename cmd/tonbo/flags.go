package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/spelling"
)

// duration is a flag's: Go's spelling, and days and weeks: 90s, 1h30m, 7d, 2w. Above zero.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

func (d *duration) Set(s string) error {
	v, err := spelling.Duration(s)
	*d = duration(v)
	return err
}

// when is a flag's point in time, RFC 3339.
type when time.Time

func (w *when) String() string {
	if time.Time(*w).IsZero() {
		return ""
	}
	return time.Time(*w).Format(time.RFC3339)
}

func (w *when) Type() string { return "time" }

func (w *when) Set(s string) error {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("%q: want a time like 2026-11-30T10:00:00Z", s)
	}
	*w = when(t)
	return nil
}

// pairs is a flag that can be given several times, each a key=value.
type pairs map[string]string

func (p *pairs) String() string { return "" }

func (p *pairs) Type() string { return "key=value" }

func (p *pairs) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q: want key=value", s)
	}
	if _, twice := (*p)[k]; twice {
		return fmt.Errorf("%q is given twice", k)
	}
	if *p == nil {
		*p = pairs{}
	}
	(*p)[k] = v
	return nil
}

// createFlags are those of every command that makes a database.
type createFlags struct {
	ttl       duration
	expiresAt when
	metadata  pairs
	key       string
	protected bool
	frozen    bool
	ifNot     bool
	pageSize  int
}

func (c *createFlags) add(f *pflag.FlagSet, once, page bool) {
	f.Var(&c.ttl, "ttl", "the database expires this long after its creation: 1h, 7d (default never)")
	f.Var(&c.expiresAt, "expires-at", "or at this time: 2026-11-30T10:00:00Z")
	f.Var(&c.metadata, "metadata", "tag it; can be given several times")
	f.BoolVar(&c.protected, "protected", false, "refuse to delete it, and do not let it expire")
	f.BoolVar(&c.frozen, "frozen", false, "it cannot be opened for writing")
	if once {
		f.StringVar(&c.key, "idempotency-key", "", "the same key again means the same database: the command can be repeated")
		f.BoolVar(&c.ifNot, "if-not-exists", false, "no error when there is one of that name: answer with it")
	}
	if page {
		f.IntVar(&c.pageSize, "page-size", 0, "bytes of a page, 512 to 65536 (default 4096)")
	}
}

func (c *createFlags) options() tonbo.CreateOptions {
	return tonbo.CreateOptions{
		TTL: time.Duration(c.ttl), ExpiresAt: time.Time(c.expiresAt), Metadata: c.metadata, IdempotencyKey: c.key,
		Protected: c.protected, Frozen: c.frozen, IfNotExists: c.ifNot, PageSize: c.pageSize,
	}
}

// filterFlags pick databases.
type filterFlags struct {
	prefix               string
	metadata             pairs
	state, owner         string
	olderThan, newerThan duration
}

func (l *filterFlags) add(f *pflag.FlagSet) {
	f.StringVar(&l.prefix, "prefix", "", "only names that begin with this")
	f.Var(&l.metadata, "metadata", "only those with this pair; can be given several times")
	f.StringVar(&l.state, "state", "", "only creating, active, expired, deleting or deleted ones (default all but deleted)")
	f.StringVar(&l.owner, "owner", "", "only those that this owner has created, host:pid most often")
	f.Var(&l.olderThan, "older-than", "only those created longer ago than this: 24h, 7d")
	f.Var(&l.newerThan, "newer-than", "only those created less long ago than this")
}

func (l *filterFlags) filter() tonbo.Filter {
	return tonbo.Filter{Prefix: l.prefix, Metadata: l.metadata, State: l.state, Owner: l.owner, OlderThan: time.Duration(l.olderThan), NewerThan: time.Duration(l.newerThan)}
}
