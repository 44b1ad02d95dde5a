package tonbo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/remote"
)

// Hydration says when the pages of a cold start are fetched.
type Hydration int

// A database of up to 1 MiB is always fetched before Open returns.
const (
	HydrateBackground Hydration = iota // Open returns at once; pages are fetched when they are read, and all others in the background
	HydrateNone                        // pages are fetched when they are read, or by [DB.Hydrated]
	HydrateFull                        // every page is fetched, and the whole compared with its checksum, before Open returns
)

// Options of Open and NewClient. The zero value works when $TONBO_URL is set.
type Options struct {
	// URL is where databases live: s3://bucket/prefix, file:///dir, mem://name, or a tonbo server: https://host, http://127.0.0.1:port, unix:///socket. Default $TONBO_URL.
	URL string
	// Remote is used instead of URL.
	Remote remote.Store
	// APIKey is the key for a server, tbo_... Default $TONBO_API_KEY.
	APIKey string
	// Token is asked for the key instead of APIKey, and again when the server has refused the one that it said.
	Token func(context.Context) (string, error)
	// Dir holds local copies, one folder a database. Default $TONBO_DIR, else the user's cache directory + /tonbo, else the temporary directory + /tonbo.
	Dir string
	// SharedCache bounds the folder .blocks in Dir, in bytes, where handles of forks, and read-only ones, share what they fetch: forks of one database on one
	// machine fetch each block once. 0: 1 GiB. Below 0: nothing is shared.
	SharedCache int64
	// Hydration says when the pages that are not in the local copy are fetched. Default HydrateBackground.
	Hydration Hydration
	// Strict makes COMMIT wait until the remote holds the transaction; refused, it fails and leaves no trace.
	Strict bool
	// SyncEvery > 0 also ships in the background, at most this long after a commit.
	SyncEvery time.Duration
	// SyncTimeout bounds a Synced whose ctx has no deadline, a strict COMMIT, and the shipping of a Close. Default 30 s.
	SyncTimeout time.Duration
	// History is how long old points stay restorable. Default 24 h.
	History time.Duration
	// Owner is who we are, shown to whoever is fenced. Default host:pid.
	Owner string
	// MaxDatabases is how many databases Create, Fork and Import let the account hold ([ErrLimit]), those being created or deleted included; < 0: any number. Set to a number, it is kept strictly, at the price of a LIST per 1,000
	// databases for each of them. 0, the default, is 10,000, and a guard against runaways: about one creation in 64 counts. A Client goes on past it for 63 creations at most, and refuses all from then on until it counts
	// fewer. Clients that create one database each are refused one time in 64.
	MaxDatabases int
	// IfIdle > 0: do not take over from an owner that wrote within this time ([ErrBusy]). Advisory: it compares clocks, and believes none that
	// is further ahead than that.
	IfIdle time.Duration
	// At picks the point that OpenReadOnly opens. Default the head.
	At At
	// Follow > 0: a read-only handle looks for newer points that often.
	Follow time.Duration
	// Pragmas are set on every connection, in the order of their names. Defaults: busy_timeout 60000 ms, synchronous NORMAL. page_size also sets the page
	// size of a database at its creation. With wal_autocheckpoint the program looks after checkpoints itself: otherwise they are made in the background from 4 MiB of
	// write-ahead log on, and by a COMMIT from 64 MiB on. (SQLite's own automatic checkpoint is off then: PRAGMA wal_autocheckpoint tells 0.)
	Pragmas map[string]string
	// Logger gets events that no error tells of. Default none.
	Logger *slog.Logger
	// Progress is called while long work goes on, from one goroutine at a time.
	Progress func(Progress)

	only      fence.ID         // the incarnation meant; zero: whichever is live
	throwaway bool             // the local copy is a scratch database's
	tune      *tuning          // for tests
	clock     func() time.Time // likewise; nil: time.Now
}

// time is what the clock shows by which databases expire.
func (o Options) time() time.Time {
	if o.clock != nil {
		return o.clock()
	}
	return time.Now()
}

// Progress of long work.
type Progress struct {
	Name  string // database
	Doing string // "restore", "hydrate", "ship"
	Done  int64  // bytes of pages
	Total int64  // bytes of pages, 0 while unknown
}

const (
	defaultSyncTimeout = 30 * time.Second
	defaultHistory     = 24 * time.Hour
	defaultSharedCache = 1 << 30 // bytes
)

// withDefaults fills in what is not set. It does not touch the remote.
func (o Options) withDefaults() (Options, error) {
	if o.Remote == nil {
		if o.URL == "" {
			o.URL = os.Getenv("TONBO_URL")
		}
		if o.URL == "" {
			return o, errors.New("no remote: set Options.URL or $TONBO_URL (s3://bucket/prefix, file:///dir, mem://name, https://host), or Options.Remote")
		}
		if o.APIKey == "" && o.Token == nil {
			o.APIKey = os.Getenv("TONBO_API_KEY")
		}
	}
	if o.Dir == "" {
		o.Dir = os.Getenv("TONBO_DIR")
	}
	if o.Dir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			dir = os.TempDir()
		}
		o.Dir = filepath.Join(dir, "tonbo")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("Options.Dir %q: %w", o.Dir, err)
	}
	o.Dir = dir
	for option, d := range map[string]time.Duration{"SyncEvery": o.SyncEvery, "SyncTimeout": o.SyncTimeout, "History": o.History, "IfIdle": o.IfIdle, "Follow": o.Follow} {
		if d < 0 {
			return o, invalid(option, "%s is negative", d)
		}
	}
	if o.Hydration < HydrateBackground || o.Hydration > HydrateFull {
		return o, invalid("Hydration", "%d is none of HydrateBackground, HydrateNone, HydrateFull", o.Hydration)
	}
	if len(o.Owner) > 256 || strings.ContainsFunc(o.Owner, unicode.IsControl) {
		return o, invalid("Owner", "%.60q: up to 256 bytes of text in one line are allowed", o.Owner)
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = defaultSyncTimeout
	}
	if o.History == 0 {
		o.History = defaultHistory
	}
	if o.SharedCache == 0 {
		o.SharedCache = defaultSharedCache
	}
	if o.Owner == "" {
		host, _ := os.Hostname()
		o.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for k, v := range o.Pragmas {
		if strings.ContainsAny(k+v, ";()\x00") || k == "" {
			return o, fmt.Errorf("Options.Pragmas[%q] = %q: want a pragma's name and a plain value", k, v)
		}
	}
	return o, nil
}
