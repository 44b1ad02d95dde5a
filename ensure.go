package tonbo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/tonbo-go/tonbo/fence"
	"github.com/tonbo-go/tonbo/internal/catalog"
)

// EnsureOptions of Ensure. The zero value gives the key an empty database.
type EnsureOptions struct {
	Create   CreateOptions // of a database that is made; its IdempotencyKey and IfNotExists are Ensure's own
	Template string        // fork this database at its head instead of making an empty one
	Version  string        // up to 200 bytes; the database's version is brought to this one. "": it stays
	// Migrate is called when the database has another Version, once per key and version whoever asks: what it writes and the new version are one transaction, which the remote acknowledges before Ensure
	// returns. from is "" for a database without a version. An error leaves everything as it was. Nil: the version changes and nothing else. It needs Version, and must not Ensure the same key.
	Migrate  func(ctx context.Context, tx *sql.Tx, from string) error
	Adopt    string // name or ID of a database that exists, to bind to a key that has none: [ErrKeyBound] otherwise
	ExpectID string // the key must have this database: [ErrTargetChanged] otherwise, and nothing is made
	// ReplaceAfter > 0: a database that has been damaged for this long gets replaced by a new one, of the next generation; the old one is kept. Default 0: never, since its data would not be in the new one.
	ReplaceAfter time.Duration
}

// RestartingError is [ErrRestarting]: a key's database does not open. Call Ensure again after RetryAfter. errors.Is sees the cause, too.
type RestartingError struct {
	Key        string
	RetryAfter time.Duration
	Since      time.Time // when it was first seen
	Err        error
}

func (e *RestartingError) Error() string {
	return fmt.Sprintf("instance %s: its database does not open since %s; call Ensure again after %s, Replace it, or set EnsureOptions.ReplaceAfter: %v", e.Key, e.Since.UTC().Format(time.RFC3339), e.RetryAfter, e.Err)
}

// Is makes errors.Is see ErrRestarting.
func (e *RestartingError) Is(target error) bool { return target == ErrRestarting }

func (e *RestartingError) Unwrap() error { return e.Err }

// want is what a key's next database is to be.
type want struct {
	create   CreateOptions
	template string
	at       At
}

// Ensure returns the database of a key, open: one database for each key, however many processes ask at once. The key's first Ensure makes it; when it was deleted or has expired, the next one makes the key's next generation. The name of
// the database is the key's, as long as no other one has it.
//
// Ensures in one process share a handle, through this client, and do not fence each other; close each Instance's DB. An Ensure in another process takes the database over, as [Open] does: the handle here then gets [ErrFenced], and the next Ensure here takes it back.
//
// Errors, for errors.Is: [ErrKeyBound] (Adopt), [ErrTargetChanged] (ExpectID), [ErrRestarting] (a [*RestartingError]), those of Migrate, and those of [Client.Create], [Client.Fork] and [Open].
func (i *Instances) Ensure(ctx context.Context, key string, o EnsureOptions) (*Instance, error) {
	if err := ValidateName(key); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, i.wrap(key, "ensure", err)
	}
	if ctx.Value(inMigration{i, key}) != nil {
		return nil, i.wrap(key, "ensure", errors.New("Ensure was called from within the key's own Migrate, which has the transaction already"))
	}
	s, err := i.lock(ctx, key)
	if err != nil {
		return nil, i.wrap(key, "ensure", err)
	}
	defer i.unlock(key, s)
	in, err := i.ensure(ctx, key, s, o)
	if err != nil {
		if s.leases == 0 {
			err = errors.Join(err, s.drop())
		}
		return nil, i.wrap(key, "ensure", err)
	}
	in.DB = i.lease(key, s)
	return in, nil
}

func (o EnsureOptions) check() error {
	switch {
	case o.Create.IdempotencyKey != "":
		return invalid("Create.IdempotencyKey", "an instance's key is its idempotency key; leave it unset")
	case o.Create.Frozen:
		return invalid("Create.Frozen", "an instance's database is opened, which a frozen one refuses")
	case o.Migrate != nil && o.Version == "":
		return invalid("Version", "Migrate is called when the version changes: say to which one")
	case o.ReplaceAfter < 0:
		return invalid("ReplaceAfter", "%s is negative", o.ReplaceAfter)
	case o.Adopt != "" && o.Template != "":
		return invalid("Adopt", "Template is set too: set either Adopt or Template")
	case len(o.Version) > 200:
		return invalid("Version", "Version has %d bytes, at most 200 are allowed", len(o.Version))
	}
	return nil
}

// inMigration marks the ctx of a key's Migrate.
type inMigration struct {
	i   *Instances
	key string
}

// ensure opens the key's database into s. The caller has the turn.
func (i *Instances) ensure(ctx context.Context, key string, s *shared, o EnsureOptions) (*Instance, error) {
	created := false
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// (1) Which database has the key?
		b, err := i.bindings(key).Head(ctx)
		if err != nil {
			return nil, err
		}
		has := b.Kind == catalog.Bound || b.Kind == catalog.Failing
		switch {
		case o.ExpectID != "" && (!has || b.ID != o.ExpectID):
			return nil, fmt.Errorf("%w: it has %s, expected was %s", ErrTargetChanged, orNone(b.ID, has), o.ExpectID)
		case o.Adopt != "" && (!has || b.ID != o.Adopt && b.Name != o.Adopt):
			if _, err := i.Bind(ctx, key, o.Adopt); err != nil {
				return nil, err
			}
			continue
		case !has:
			var ours bool
			if b, ours, err = i.make(ctx, key, b, want{create: o.Create, template: o.Template}); err != nil {
				return nil, err
			}
			created = created || ours
		}
		// (2) Open it, that incarnation and no other.
		in := instanceOf(key, b)
		in.Started, err = i.start(ctx, s, b)
		switch {
		case errors.Is(err, fence.ErrNoDatabase), errors.Is(err, ErrNotFound), errors.Is(err, ErrDeleted), errors.Is(err, ErrExpired):
			// (3) It has ended: the key's next generation.
			if o.ExpectID != "" || o.Adopt != "" {
				return nil, fmt.Errorf("%w: database %s has ended", ErrTargetChanged, b.ID)
			}
			_, ours, err := i.make(ctx, key, b, want{create: o.Create, template: o.Template})
			if err != nil {
				return nil, err
			}
			created = created || ours
			continue
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrRemoteLost):
			// (4) It does not open. Nothing takes its place unless that was asked for.
			replaced, ferr := i.failing(ctx, key, b, o, err)
			if ferr != nil {
				return nil, ferr
			}
			created = created || replaced
			continue
		case err != nil:
			return nil, err
		}
		if b.Kind == catalog.Failing {
			if _, _, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation, Name: b.Name, ID: b.ID}); err != nil {
				return nil, err
			}
		}
		if created {
			in.Started = Created
		}
		// (5) Its version, under the fence.
		in.Version, err = s.db.migrate(context.WithValue(ctx, inMigration{i, key}, true), o.Version, o.Migrate)
		if errors.Is(err, ErrFenced) && try < 100 { // another process has asked at the same moment: it may be migrating. Let it come to its end
			if err := pause(ctx, time.Duration(1+mathrand.IntN(20<<min(try, 6)))*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		return in, err
	}
}

func orNone(id string, has bool) string {
	if !has {
		return "none"
	}
	return id
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start makes s.db an open handle of the database that b names.
func (i *Instances) start(ctx context.Context, s *shared, b *catalog.Binding) (Started, error) {
	id, ok := fence.ParseID(b.ID)
	if !ok {
		return "", fmt.Errorf("%w: the key's log names database %q", ErrCorrupt, b.ID)
	}
	if s.db != nil {
		same := s.db.h.o.only == id
		var err error
		if same { // it may have been taken over, deleted or have expired since
			err = s.db.Synced(ctx)
		}
		switch {
		case same && err == nil:
			return Running, nil
		case same && errors.Is(err, ErrFenced):
			if err := s.db.Reopen(ctx); err != nil {
				return "", err
			}
			return Running, nil
		case same && s.db.Err() == nil: // the store cannot be reached, or the like: it goes on when it can
			return "", err
		}
		if err := s.drop(); err != nil {
			i.c.o.Logger.Debug("closing a database that is over", "database", b.Name, "error", err)
		}
	}
	o := i.c.o
	o.only = id
	db, err := Open(ctx, b.Name, o)
	if err != nil {
		return "", err
	}
	s.db, s.name = db, b.Name
	owner, _ := db.h.current()
	if prev := owner.Prev(); prev != nil && prev.Kind != fence.Close && prev.Kind != fence.Create && time.Since(prev.Time).Abs() < runningWithin {
		return Running, nil
	}
	return Resumed, nil
}

// make gives the key its next database, behind b. ours: this call has made it, and nobody else.
func (i *Instances) make(ctx context.Context, key string, b *catalog.Binding, w want) (_ *catalog.Binding, ours bool, err error) {
	for generation := b.Generation + 1; ; {
		// (1) The intent: whoever comes along from here on makes this very database.
		if b.Kind != catalog.Bind {
			name := databaseName(key, generation, "")
			if b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bind, Generation: generation, Name: name}); err != nil {
				return nil, false, err
			}
			fault("ensure:bind")
		}
		if b.Kind != catalog.Bind { // others are further
			if b.Kind == catalog.Release || b.Generation < generation {
				continue
			}
			return b, false, nil
		}
		// (2) The database, once for this entry of the key's log.
		w.create.IdempotencyKey = fmt.Sprintf("instance %s %d", key, b.Slot)
		w.create.IfNotExists, w.create.instance = false, key
		var d *Database
		if w.template == "" {
			d, err = i.c.Create(ctx, b.Name, w.create)
		} else {
			d, err = i.c.Fork(ctx, w.template, b.Name, ForkOptions{CreateOptions: w.create, At: w.at})
		}
		fault("ensure:created")
		switch {
		case err == nil:
		case errors.Is(err, ErrExists):
			// The name is another database's: another name.
			var tag [4]byte
			rand.Read(tag[:])
			if b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bind, Generation: b.Generation, Name: databaseName(key, b.Generation, fmt.Sprintf("-%x", tag))}); err != nil {
				return nil, false, err
			}
			continue
		case errors.Is(err, ErrIdempotency):
			// Made for this entry, by others with other options or long ago, and ended perhaps: the next one.
			if b, _, err = i.append(ctx, key, b, catalog.Binding{Kind: catalog.Release, Generation: b.Generation}); err != nil {
				return nil, false, err
			}
			generation = max(generation, b.Generation+1)
			continue
		default:
			return nil, false, err
		}
		// (3) The key has it.
		there, ours, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Bound, Generation: b.Generation, Name: d.Name, ID: d.ID})
		if err != nil {
			return nil, false, err
		}
		fault("ensure:bound")
		if there.Kind != catalog.Bound && there.Kind != catalog.Failing {
			b = there
			continue
		}
		return there, ours, nil
	}
}

// databaseName is the name of a key's database: the key, and for later generations the generation behind it. Names have the length of keys: a long key is cut, which the tag makes up for.
func databaseName(key string, generation uint64, tag string) string {
	suffix := ""
	if generation > 1 || tag != "" {
		suffix = fmt.Sprintf(".g%d%s", generation, tag)
	}
	return key[:min(len(key), 200-len(suffix))] + suffix
}

// failing notes that a key's database does not open because of cause, and gives the key another one when that was asked for and has lasted long enough.
func (i *Instances) failing(ctx context.Context, key string, b *catalog.Binding, o EnsureOptions, cause error) (replaced bool, _ error) {
	if b.Kind != catalog.Failing {
		reason := cause.Error()
		there, _, err := i.append(ctx, key, b, catalog.Binding{Kind: catalog.Failing, Generation: b.Generation, Name: b.Name, ID: b.ID, Since: time.Now().UTC(), Reason: reason[:min(len(reason), 500)]})
		if err != nil {
			return false, errors.Join(cause, err)
		}
		if b = there; b.Kind != catalog.Failing {
			return false, nil // the key has moved on
		}
	}
	lasted := time.Since(b.Since)
	if o.ReplaceAfter > 0 && lasted >= o.ReplaceAfter && o.ExpectID == "" && o.Adopt == "" {
		_, ours, err := i.make(ctx, key, b, want{create: o.Create, template: o.Template})
		return ours, err
	}
	retry := min(max(lasted/4, time.Second), 30*time.Second) // longer the longer it lasts
	if o.ReplaceAfter > 0 && lasted < o.ReplaceAfter {
		retry = min(retry, o.ReplaceAfter-lasted)
	}
	return false, &RestartingError{Key: key, RetryAfter: retry, Since: b.Since, Err: cause}
}

// migrate brings the database to a version, once. It returns the version that it has.
func (db *DB) migrate(ctx context.Context, version string, fn func(context.Context, *sql.Tx, string) error) (string, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	var from string
	err = tx.QueryRowContext(ctx, `SELECT name FROM sqlite_schema WHERE name = '_tonbo_meta'`).Scan(new(string))
	if err == nil {
		err = tx.QueryRowContext(ctx, `SELECT value FROM _tonbo_meta WHERE key = 'version'`).Scan(&from)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	if version == "" || version == from {
		return from, nil
	}
	if fn != nil {
		if err := fn(ctx, tx, from); err != nil {
			return "", fmt.Errorf("migrate from version %q to %q: %w", from, version, err)
		}
	}
	if _, err := tx.ExecContext(ctx, metaTable); err != nil {
		return "", err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO _tonbo_meta VALUES('version', ?) ON CONFLICT DO UPDATE SET value = excluded.value`, version); err != nil {
		return "", err
	}
	fault("ensure:migrated")
	if err := tx.Commit(); err != nil {
		return "", err
	}
	return version, db.Synced(ctx)
}
